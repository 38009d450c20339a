// How long ago each time was, the connection's state, and the code that `holdfast login` puts behind the address.
(() => {
  "use strict";
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const skew = Date.parse(document.body.dataset.now) - Date.now() || 0;  // by the controller's clock, whatever this machine's shows
  const ago = (then) => {
    const apart = Math.round((Date.now() + skew - then) / 1000);
    const size = Math.abs(apart);
    const [length, unit] = units.find(([each]) => size >= each) || units[3];
    const text = `${Math.floor(size / length)} ${unit}`;
    return apart >= 0 ? `${text} ago` : `in ${text}`;
  };
  const tick = () => {
    for (const each of document.querySelectorAll("time[datetime]")) {
      const then = Date.parse(each.dateTime);
      if (Number.isNaN(then)) continue;
      if (!each.title) each.title = each.textContent;
      const text = ago(then);
      if (each.textContent !== text) each.textContent = text;
    }
  };
  setInterval(tick, 1000);
  document.addEventListener("DOMContentLoaded", () => {
    tick();
    const field = document.getElementById("token");
    if (field && location.hash.length > 1) {
      field.value = decodeURIComponent(location.hash.slice(1));
      history.replaceState(null, "", location.pathname + location.search);
    }
  });
  const lost = (state) => {
    const shown = document.getElementById("connection");
    if (shown) shown.hidden = !state;
  };
  document.addEventListener("htmx:sse:error", (event) => {
    lost(true);
    if (event.detail && event.detail.status === 401) location.assign("/ui/sign-in");
  });
  document.addEventListener("htmx:sse:after:connection", () => lost(false));
  document.addEventListener("htmx:sse:after:message", () => { lost(false); tick(); });
  document.addEventListener("signed-out", () => location.assign("/ui/sign-in"));
})();
