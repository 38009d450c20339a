// The search runs in a worker, which browsers refuse to pages that are opened from a disk (file://). There it runs in a
// hidden frame of the page. Without this file mkdocs-material would load its own from another host.
class FrameWorker extends EventTarget {
  constructor(url) {
    super();
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    document.body.append(this.frame);
    const inside = this.frame.contentWindow;
    inside.postMessage = (data) =>
      this.dispatchEvent(new MessageEvent("message", { data: structuredClone(data) }));
    inside.importScripts = async (...urls) => {
      for (const each of urls) await this.load(each);
    };
    this.ready = this.load(url);
  }

  load(url) {
    const script = this.frame.contentDocument.createElement("script");
    script.src = url;
    const loaded = new Promise((resolve, reject) => {
      script.onload = resolve;
      script.onerror = reject;
    });
    this.frame.contentDocument.body.append(script);
    return loaded;
  }

  postMessage(data) {
    this.ready.then(() => {
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data: structuredClone(data) }));
    });
  }

  terminate() {
    this.frame.remove();
  }
}

if (location.protocol === "file:") window.Worker = FrameWorker;
