{{/* What the pods of both roles have in common. Arguments: root; own, which is .Values.worker or .Values.driver. */}}

{{- define "horovod.podSettings" -}}
{{- $values := .root.Values -}}
{{- if $values.useHostNetwork }}
hostNetwork: true
dnsPolicy: ClusterFirstWithHostNet
{{- end }}
{{- if $values.useHostPID }}
hostPID: true
{{- end }}
{{- with $values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  seccompProfile:
    type: RuntimeDefault
  {{- if $values.runAsNonRoot }}
  runAsNonRoot: true
  runAsUser: {{ int64 $values.runAsUser }}
  runAsGroup: {{ int64 $values.runAsUser }}
  fsGroup: {{ int64 $values.runAsUser }}
  {{- end }}
{{- with default $values.nodeSelector .own.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with default $values.tolerations .own.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with default $values.affinity .own.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* For pods with ranks. */}}
{{- define "horovod.metricsAnnotations" -}}
{{- if and .Values.metrics.enabled .Values.metrics.annotations -}}
annotations:
  prometheus.io/scrape: "true"
  prometheus.io/port: {{ .Values.metrics.port | quote }}
  prometheus.io/path: /metrics
{{- end -}}
{{- end -}}

{{/* What sshd needs as root, and nothing more: to give up rights, to lock itself in, and port 22. */}}
{{- define "horovod.containerSecurity" -}}
{{- if .own.privileged }}
privileged: true
{{- else }}
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
  {{- if not .root.Values.runAsNonRoot }}
  add: [CHOWN, DAC_OVERRIDE, FOWNER, KILL, NET_BIND_SERVICE, SETGID, SETUID, SYS_CHROOT]
  {{- end }}
{{- end }}
{{- end -}}

{{/* Maps of variables, the later ones winning. Arguments: root, maps. */}}
{{- define "horovod.env" -}}
{{- $all := dict -}}
{{- range .maps }}{{- $all = mustMergeOverwrite $all (deepCopy (default dict .)) }}{{- end -}}
- name: SSHPORT
  value: {{ .root.Values.ssh.port | quote }}
{{- if include "horovod.keysAreGiven" .root }}
- name: USESECRETS
  value: "true"
{{- end }}
{{- if .root.Values.metrics.enabled }}
- name: HOROVOD_METRICS_PORT
  value: {{ .root.Values.metrics.port | quote }}
- name: HOROVOD_OBSERVE_ADDRESS
  value: "0.0.0.0"
{{- end }}
- name: HOROVOD_SSH_COMMAND
  value: ssh -F /horovod/ssh/config
{{- range $name, $value := $all }}
- name: {{ $name }}
  {{- if kindIs "map" $value }}
  valueFrom: {{- toYaml $value | nindent 4 }}
  {{- else if and (kindIs "float64" $value) (eq (floor $value) (float64 $value)) }}
  value: {{ int64 $value | quote }}
  {{- else }}
  value: {{ $value | toString | quote }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* Arguments: root, user: whether the user's own volumes are wanted. */}}
{{- define "horovod.mounts" -}}
- name: generated
  mountPath: /horovod/generated
- name: keys
  mountPath: /etc/secret-volume
  readOnly: true
- name: ssh
  mountPath: /horovod/ssh
{{- if .user }}
{{- if include "horovod.datasetClaim" .root }}
- name: dataset
  mountPath: {{ .root.Values.datasetPath }}
  {{- if .root.Values.datasetReadOnly }}
  readOnly: true
  {{- end }}
{{- end }}
{{- if .root.Values.shmSize }}
- name: shm
  mountPath: /dev/shm
{{- end }}
{{- with .root.Values.volumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Arguments: root; files: names in the ConfigMap and in /horovod/generated; publicOnly: whether the key to log in with stays
     out. */}}
{{- define "horovod.volumes" -}}
- name: generated
  configMap:
    name: {{ include "horovod.fullname" .root }}
    items:
      - {key: hostfile.config, path: hostfile, mode: 0666}
      - {key: settings, path: settings.sh, mode: 0555}
      - {key: ssh.functions, path: ssh.sh, mode: 0555}
      {{- range $key, $path := .files }}
      - {key: {{ $key }}, path: {{ $path }}, mode: 0555}
      {{- end }}
- name: keys
  {{- if .publicOnly }}
  projected:
    defaultMode: 0700
    sources:
      - secret:
          name: {{ include "horovod.secretName" .root }}
          items: [{key: host-key-pub, path: host-key-pub}]
      - secret:
          name: {{ include "horovod.secretName" .root }}
          items: [{key: server-key, path: server-key}]
          optional: true
  {{- else }}
  secret:
    secretName: {{ include "horovod.secretName" .root }}
    defaultMode: 0700
  {{- end }}
- name: ssh
  emptyDir:
    medium: Memory
    sizeLimit: 1Mi
{{- with include "horovod.datasetClaim" .root }}
- name: dataset
  persistentVolumeClaim:
    claimName: {{ . }}
    {{- if $.root.Values.datasetReadOnly }}
    readOnly: true
    {{- end }}
{{- end }}
{{- if .root.Values.shmSize }}
- name: shm
  emptyDir:
    medium: Memory
    sizeLimit: {{ .root.Values.shmSize }}
{{- end }}
{{- with .root.Values.volumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The role's own resources or those of both. A driver without slots does not take a GPU away from the workers. */}}
{{- define "horovod.resources" -}}
{{- if kindIs "map" .own.resources -}}
{{- toYaml .own.resources -}}
{{- else -}}
{{- $resources := deepCopy (default dict .root.Values.resources) -}}
{{- if .withoutGpu -}}
{{- range $kind, $amounts := $resources -}}
{{- range $name, $_ := $amounts -}}
{{- if hasSuffix "/gpu" $name -}}{{- $_ := unset $amounts $name -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end -}}
{{- end -}}
