"""Drives a headless Chromium through a pipe, by the DevTools protocol: no port, no dependency.

with Chromium() as browser:
page = browser.open("http://127.0.0.1:4410/", width=1280, dark=True)
page.wait("document.querySelectorAll('tbody tr').length > 0")
assert page.problems == []
page.screenshot("page.png")
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-extensions", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--hide-scrollbars", "--mute-audio", "--remote-debugging-pipe",
)  # fmt: skip
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_KEYS = {
    "Tab": (9, ""), "Enter": (13, "\r"), " ": (32, " "), "Escape": (27, ""),
    "ArrowDown": (40, ""), "ArrowUp": (38, ""),
}  # fmt: skip


def find() -> str | None:
    """Return the path of a Chromium, if there is one."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


class Chromium:
    """A browser. It reads commands on descriptor 3 and answers on 4, each message ended by a zero.

    Args:
        program: Its path; the one that :func:`find` finds by default.
        timeout_s: How long any answer may take.
    """

    def __init__(self, program: str | None = None, timeout_s: float = 20.0) -> None:
        program = program or find()
        if program is None:
            raise FileNotFoundError("there is no Chromium")
        self.timeout_s = timeout_s
        self._number = 0
        self._pending = b""
        self._pages: dict[str, Page] = {}
        self._profile = tempfile.mkdtemp(prefix="chromium-")
        read_by_it, self._write = os.pipe()
        self._read, written_by_it = os.pipe()
        # The shell puts the pipes at the two descriptors that Chromium expects.
        places = f'exec 3<&{read_by_it} 4>&{written_by_it}; exec "$@"'
        self._process = subprocess.Popen(
            ["bash", "-c", places, "bash", program, *_FLAGS, f"--user-data-dir={self._profile}"],
            pass_fds=(read_by_it, written_by_it),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(read_by_it)
        os.close(written_by_it)

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> Page:
        """Open a page in a tab of its own."""
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        attached = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})
        page = Page(self, attached["sessionId"], target)
        self._pages[attached["sessionId"]] = page
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.resize(width, height)
        page.prefer(dark=dark)
        answer = page.call("Page.navigate", {"url": url})
        if "errorText" in answer:
            raise RuntimeError(f"{url}: {answer['errorText']}")
        page.wait("document.readyState === 'complete' && location.href !== 'about:blank'")
        return page

    def call(
        self, method: str, params: dict[str, Any] | None = None, session: str | None = None
    ) -> Any:
        """Send a command and return its result; events that come meanwhile go to their pages."""
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": params or {}}
        if session is not None:
            message["sessionId"] = session
        self._send(json.dumps(message).encode() + b"\0")
        until = time.monotonic() + self.timeout_s
        while True:
            answer = self._receive(until)
            if answer is None:
                raise TimeoutError(f"{method}: no answer in {self.timeout_s} s")
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def pump(self, seconds: float) -> None:
        """Take events for some time."""
        until = time.monotonic() + seconds
        while self._receive(until) is not None:
            pass

    def close(self) -> None:
        """End the browser, and remove its profile."""
        try:
            self.call("Browser.close")
            self._process.wait(5)
        except (OSError, TimeoutError, RuntimeError, EOFError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)
        shutil.rmtree(self._profile, ignore_errors=True)

    def _send(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._write, data) :]

    def _receive(self, until: float) -> dict[str, Any] | None:
        """Return the next message; ``None`` if none comes in time."""
        while b"\0" not in self._pending:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._read], [], [], left)[0]:
                return None
            data = os.read(self._read, 1 << 16)
            if not data:
                raise EOFError("Chromium has ended")
            self._pending += data
        text, _, self._pending = self._pending.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        page = self._pages.get(message.get("sessionId", ""))
        if page is not None and "method" in message:
            page.note(message["method"], message["params"])
        return message


class Page:
    """A tab. ``problems`` has its errors: of scripts, of the console, of the security policy.

    ``requests`` has the URLs that it has asked for.
    """

    def __init__(self, browser: Chromium, session: str, target: str) -> None:
        self.browser = browser
        self.problems: list[str] = []
        self.requests: list[str] = []
        self._session = session
        self._target = target

    def call(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """Send a command to this tab."""
        return self.browser.call(method, params, self._session)

    def note(self, method: str, params: dict[str, Any]) -> None:
        """Take an event."""
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            text = details.get("exception", {}).get("description") or details["text"]
            self.problems.append(f"exception: {text}")
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            texts = (str(arg.get("value", arg.get("description"))) for arg in params["args"])
            self.problems.append(f"console: {' '.join(texts)}")
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            entry = params["entry"]
            self.problems.append(f"{entry['source']}: {entry['text']} {entry.get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def evaluate(self, script: str) -> Any:
        """Return the value of an expression; a promise is awaited."""
        answer = self.call(
            "Runtime.evaluate",
            {"expression": script, "returnByValue": True, "awaitPromise": True},
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"].get("exception", {}).get("description"))
        return answer["result"].get("value")

    def wait(self, condition: str, seconds: float = 10.0) -> None:
        """Wait until an expression is true."""
        until = time.monotonic() + seconds
        while not self.evaluate(f"Boolean({condition})"):
            if time.monotonic() > until:
                raise TimeoutError(f"not in {seconds} s: {condition}")
            self.browser.pump(0.05)

    def resize(self, width: int, height: int = 900) -> None:
        """Set the size of the window, in CSS pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )

    def prefer(self, *, dark: bool = False, reduced_motion: bool = False) -> None:
        """Set what the reader's system prefers."""
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {
                "name": "prefers-reduced-motion",
                "value": "reduce" if reduced_motion else "no-preference",
            },
        ]
        self.call("Emulation.setEmulatedMedia", {"features": features})

    def press(self, key: str, *, shift: bool = False) -> None:
        """Press and release a key: Tab, Enter, a space, Escape, ArrowDown or ArrowUp."""
        code, text = _KEYS[key]
        event = {
            "key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": code,
            "modifiers": 8 if shift else 0,
        }  # fmt: skip
        down = {"type": "keyDown", "text": text} if text else {"type": "rawKeyDown"}
        self.call("Input.dispatchKeyEvent", {**event, **down})
        self.call("Input.dispatchKeyEvent", {**event, "type": "keyUp"})

    def type(self, text: str) -> None:
        """Insert a text where the focus is."""
        self.call("Input.insertText", {"text": text})

    def click(self, selector: str) -> None:
        """Click the middle of an element with the mouse."""
        # Two frames later even frames of other processes know where they are after the scroll.
        x, y = self.evaluate(
            f"(async () => {{const node = document.querySelector({json.dumps(selector)});"
            "node.scrollIntoView({block: 'center'});"
            "for (let i = 0; i < 2; i++) await new Promise(requestAnimationFrame);"
            "const box = node.getBoundingClientRect();"
            "return [box.left + box.width / 2, box.top + box.height / 2]})()"
        )
        event = {"x": x, "y": y, "button": "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", {**event, "type": "mousePressed"})
        self.call("Input.dispatchMouseEvent", {**event, "type": "mouseReleased"})

    def screenshot(self, path: str | Path, *, whole: bool = True) -> None:
        """Save a picture: of the whole page, or of what the window shows."""
        options = {"format": "png", "captureBeyondViewport": whole}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            options["clip"] = {
                "x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1,
            }  # fmt: skip
        picture = self.call("Page.captureScreenshot", options)["data"]
        Path(path).write_bytes(base64.b64decode(picture))

    def close(self) -> None:
        """Close the tab."""
        self.browser.call("Target.closeTarget", {"targetId": self._target})
