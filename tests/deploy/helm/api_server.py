"""As much of a Kubernetes API server as kubectl and Helm need here: versions, the kinds of v1, pods to list, secrets.

    with ApiServer() as api:
        api.pods = [pod("demo-0", labels, ready=True)]
        subprocess.run(["kubectl", "get", "pods"], env=os.environ | api.environment(folder))
        api.requests        # "GET /api/v1/namespaces/lab/pods", ...

Thread rule: requests are served by threads of its own; what a test sets is replaced, never changed in place.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

KINDS = [
    {"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod", "verbs": ["list"]},
    {"name": "secrets", "singularName": "secret", "namespaced": True, "kind": "Secret", "verbs": ["create", "get"]},
]
FIXED: dict[str, Any] = {
    "/version": {"major": "1", "minor": "30", "gitVersion": "v1.30.0"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": KINDS},
}
Object = dict[str, Any]


def pod(name: str, labels: dict[str, str], *, ready: bool, deleted: bool = False) -> Object:
    metadata: Object = {"name": name, "namespace": "lab", "labels": labels}
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    conditions = [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": str(ready)}]
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "status": {"conditions": conditions}}


class ApiServer:
    def __init__(self) -> None:
        self.pods: list[Object] = []
        self.secrets: dict[str, Object] = {}
        self.requests: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(*server._get(self.path))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self._answer(*server._create(self.path, body))

            def _answer(self, code: int, answer: Object) -> None:
                server.requests.append(f"{self.command} {urlsplit(self.path).path}")
                text = json.dumps(answer).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, name="api server", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def environment(self, folder: Path) -> dict[str, str]:
        """With which kubectl finds it, and keeps what it remembers in a folder."""
        config = folder / "kubeconfig"
        cluster = {"name": "fake", "cluster": {"server": self.url}}
        context = {"name": "fake", "context": {"cluster": "fake", "user": ""}}
        config.write_text(json.dumps({"clusters": [cluster], "contexts": [context], "current-context": "fake"}))
        return {"KUBECONFIG": str(config), "HOME": str(folder)}

    def _get(self, path: str) -> tuple[int, Object]:
        url = urlsplit(path)
        if url.path in FIXED:
            return 200, FIXED[url.path]
        if url.path == "/api/v1/namespaces/lab/pods":
            wanted = dict(each.split("=") for each in parse_qs(url.query)["labelSelector"][0].split(","))
            found = [each for each in self.pods if wanted.items() <= each["metadata"]["labels"].items()]
            return 200, {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": found}
        if (name := url.path.removeprefix("/api/v1/namespaces/lab/secrets/")) in self.secrets:
            return 200, self.secrets[name]
        return 404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}

    def _create(self, path: str, body: Object) -> tuple[int, Object]:
        assert urlsplit(path).path == "/api/v1/namespaces/lab/secrets", path
        self.secrets[body["metadata"]["name"]] = body
        return 201, body
