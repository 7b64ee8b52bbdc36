{{/* Names: F is the release, followed by the chart unless it is in there already. */}}
{{- define "horovod.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "horovod.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "horovod.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "horovod.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* A name that begins with F and keeps its end however long F is. Arguments: root, suffix. */}}
{{- define "horovod.nameWith" -}}
{{- $room := sub 62 (len .suffix) | int -}}
{{- printf "%s-%s" (include "horovod.fullname" .root | trunc $room | trimSuffix "-") .suffix -}}
{{- end -}}

{{- define "horovod.chart" -}}
{{- printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" -}}
{{- end -}}

{{/* What never changes for a release: selectors and the pods of the StatefulSet. Arguments: root, role. */}}
{{- define "horovod.selector" -}}
app: {{ include "horovod.name" .root }}
release: {{ .root.Release.Name }}
role: {{ .role }}
{{- end -}}

{{- define "horovod.labels" -}}
app: {{ include "horovod.name" . }}
chart: {{ include "horovod.chart" . }}
release: {{ .Release.Name }}
heritage: {{ .Release.Service }}
{{- end -}}

{{/* Where the keys are: given in values, in a secret of the user's, or made by a hook. */}}
{{- define "horovod.keysAreGiven" -}}
{{- if or .Values.ssh.useSecrets .Values.ssh.useSecret .Values.ssh.hostKey .Values.ssh.hostKeyPub -}}true{{- end -}}
{{- end -}}

{{- define "horovod.secretName" -}}
{{- if include "horovod.keysAreGiven" . -}}
{{- include "horovod.fullname" . -}}
{{- else if .Values.ssh.existingSecret -}}
{{- .Values.ssh.existingSecret -}}
{{- else -}}
{{- include "horovod.nameWith" (dict "root" . "suffix" "keys") -}}
{{- end -}}
{{- end -}}

{{- define "horovod.makesKeys" -}}
{{- if not (or (include "horovod.keysAreGiven" .) .Values.ssh.existingSecret) -}}true{{- end -}}
{{- end -}}

{{- define "horovod.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "horovod.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* The GPUs of a worker's limits, of any vendor; ranks need one each. */}}
{{- define "horovod.slots" -}}
{{- $slots := .Values.worker.slots -}}
{{- if kindIs "invalid" $slots -}}
{{- $slots = 0 -}}
{{- range $name, $count := (include "horovod.resources" (dict "root" . "own" .Values.worker) | fromYaml).limits -}}
{{- if hasSuffix "/gpu" $name -}}{{- $slots = add $slots (int $count) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- max 1 (int $slots) -}}
{{- end -}}

{{/* The claim with the data: the name of one that is there, or of one that dataset.yaml makes; empty: none. */}}
{{- define "horovod.datasetClaim" -}}
{{- $dataset := .Values.datasetPvc -}}
{{- if kindIs "map" $dataset -}}
{{- if $dataset.enabled -}}
{{- default (include "horovod.nameWith" (dict "root" . "suffix" "dataset")) $dataset.existingClaim -}}
{{- end -}}
{{- else -}}
{{- default "" $dataset -}}
{{- end -}}
{{- end -}}

{{/* A key as ssh takes it, however it came through files and shells: without indentation, carriage returns, empty lines, and
     with a newline at its end. */}}
{{- define "horovod.key" -}}
{{- $lines := list -}}
{{- range regexSplit "[\r\n]+" . -1 -}}
{{- if trim . -}}{{- $lines = append $lines (trim .) -}}{{- end -}}
{{- end -}}
{{- join "\n" $lines }}
{{ end -}}

{{- define "horovod.image" -}}
{{ .image.repository }}:{{ default .root.Chart.AppVersion .image.tag }}
{{- end -}}

{{/* Mistakes that a schema cannot see. */}}
{{- define "horovod.check" -}}
{{- $port := int .Values.ssh.port -}}
{{- if and .Values.useHostNetwork (eq $port 22) -}}
{{- fail "useHostNetwork needs an ssh.port other than 22, which is the node's own: set ssh.port, for example 12345" -}}
{{- end -}}
{{- if and .Values.runAsNonRoot (lt $port 1024) -}}
{{- fail "runAsNonRoot needs an ssh.port of 1024 or more: set ssh.port, for example 2222" -}}
{{- end -}}
{{- if include "horovod.keysAreGiven" . -}}
{{- if not (and .Values.ssh.hostKey .Values.ssh.hostKeyPub) -}}
{{- fail "ssh.useSecrets needs both ssh.hostKey and ssh.hostKeyPub (ssh-keygen -t ed25519 -N '' -f key); without useSecrets a pair is made by itself" -}}
{{- end -}}
{{- if not (regexMatch "^-----BEGIN ([A-Z0-9]+ )*PRIVATE KEY-----\n(.+\n)+-----END ([A-Z0-9]+ )*PRIVATE KEY-----\n$" (include "horovod.key" .Values.ssh.hostKey)) -}}
{{- fail "ssh.hostKey is no private key of OpenSSH's or in PEM format, from its line BEGIN to its line END: give what is in the file of ssh-keygen -t ed25519 -N '' -f key" -}}
{{- end -}}
{{- if not (regexMatch "^[^\n]*(ssh-|ecdsa-|sk-)[^ \n]+ [^\n]+\n" (include "horovod.key" .Values.ssh.hostKeyPub)) -}}
{{- fail "ssh.hostKeyPub is no public key of OpenSSH's, such as ssh-ed25519 AAAA...: give what is in key.pub" -}}
{{- end -}}
{{- if .Values.ssh.existingSecret -}}
{{- fail "give either ssh.existingSecret or ssh.hostKey and ssh.hostKeyPub" -}}
{{- end -}}
{{- end -}}
{{- end -}}
