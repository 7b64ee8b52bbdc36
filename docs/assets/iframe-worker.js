/* Browsers start no workers for pages that are opened from a folder (file://), and the search of the site is one.
 * There, a hidden frame takes the worker's place: it has a global scope of its own, and may load scripts. */
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.append(this.frame)
      const scope = this.frame.contentWindow
      const load = each =>
        new Promise((resolve, reject) => {
          const script = scope.document.createElement("script")
          script.src = each
          script.onload = resolve
          script.onerror = reject
          scope.document.body.append(script)
        })
      scope.importScripts = (...urls) => urls.reduce((before, each) => before.then(() => load(each)), Promise.resolve())
      scope.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      this.ready = load(url)
      this.ready.catch(() => this.dispatchEvent(new Event("error")))
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
