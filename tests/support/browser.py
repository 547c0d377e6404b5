"""A headless Chromium, through chromedriver's HTTP interface (W3C WebDriver)."""

import base64
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

import explain

# Starting a browser on a loaded machine takes its time.
START_TIMEOUT_S = 120.0
START_TRIES = 3

# A probe for nothing but this page: no look-ups of its own, no first-run pages, no updates.
ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-extensions", "--disable-dev-shm-usage",
    "--disable-default-apps", "--mute-audio", "--lang=en-US", "--no-proxy-server", "--force-device-scale-factor=1",
]  # fmt: skip


class WebDriverError(Exception):
    pass


class Browser:
    """One window. Ends with everything it started."""

    def __init__(self):
        for attempt in range(START_TRIES):
            try:
                self._start()
                return
            except (WebDriverError, OSError, http.client.HTTPException):
                self.close()
                if attempt + 1 == START_TRIES:
                    raise

    def _start(self):
        self._driver = None
        self._session = None
        self.dir = tempfile.mkdtemp(prefix="leafctl-browser-")
        driver = shutil.which("chromedriver")
        chromium = shutil.which("chromium")
        if not driver or not chromium:
            raise AssertionError("there is no Chromium: apt-get install chromium chromium-driver")
        log = os.path.join(self.dir, "log")
        explain.watch_file("chromedriver", log)
        environment = {**os.environ, "HOME": self.dir, "XDG_CONFIG_HOME": self.dir, "XDG_CACHE_HOME": self.dir}
        with open(log, "wb") as out:
            self._driver = subprocess.Popen(
                [driver, "--port=0"], stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
                env=environment,
            )  # fmt: skip
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            with open(log, encoding="utf-8", errors="replace") as file:
                text = file.read()
            found = re.search(r"started successfully on port (\d+)", text)
            if found:
                break
            if self._driver.poll() is not None or time.monotonic() > deadline:
                raise WebDriverError("chromedriver does not start:\n" + text)
            time.sleep(0.05)
        self._port = int(found.group(1))
        options = {"binary": chromium, "args": [*ARGUMENTS, "--user-data-dir=" + os.path.join(self.dir, "profile")]}
        always = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        self._session = self._call("POST", "/session", {"capabilities": {"alwaysMatch": always}})["sessionId"]

    def close(self):
        if self._session:
            try:
                self._call("DELETE", "/session/" + self._session, timeout=20)
            except (WebDriverError, OSError, http.client.HTTPException):
                pass
            self._session = None
        if self._driver:
            # The browser's processes are in the driver's group.
            try:
                os.killpg(self._driver.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self._driver.wait()
            self._driver = None
        shutil.rmtree(self.dir, ignore_errors=True)

    def _call(self, method, path, body=None, timeout=START_TIMEOUT_S):
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=timeout)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None)
            value = json.loads(connection.getresponse().read().decode())["value"]
        finally:
            connection.close()
        if isinstance(value, dict) and "error" in value:
            raise WebDriverError("%s: %s" % (value["error"], value["message"]))
        return value

    def _do(self, method, command, body=None):
        return self._call(method, "/session/%s/%s" % (self._session, command), body)

    def open(self, url):
        self._do("POST", "url", {"url": url})

    def run(self, script, *arguments):
        """What the body of a JavaScript function returns."""
        return self._do("POST", "execute/sync", {"script": script, "args": list(arguments)})

    def text(self, selector):
        """What is to be read in the first match; None without one."""
        return self.run("const e = document.querySelector(arguments[0]); return e && e.innerText;", selector)

    def click(self, selector):
        """As a person does: what only a person may ask for (the clipboard, say) is granted."""
        (element,) = self._do("POST", "element", {"using": "css selector", "value": selector}).values()
        self._do("POST", "element/%s/click" % element, {})

    def devtools(self, command, **parameters):
        return self._do("POST", "goog/cdp/execute", {"cmd": command, "params": parameters})

    def resize(self, width, height):
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def prefer(self, scheme):
        """"dark" or "light"."""
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def messages(self):
        """What the console says since it was asked last."""
        return self._do("POST", "se/log", {"type": "browser"})

    def requests(self):
        """The URLs that were asked for since the last call."""
        urls = []
        for entry in self._do("POST", "se/log", {"type": "performance"}):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                urls.append(message["params"]["request"]["url"])
        return urls

    def screenshot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self._do("GET", "screenshot")))
