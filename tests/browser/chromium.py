"""A headless Chromium, driven over its own debugging protocol: as much of it as a test of a page needs.

Everything that the page logs, throws or asks the network for is kept from the start, so that a test can say that there was none.
"""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import signal
import subprocess
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from tests.support.waiting import PATIENCE_S

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0",
    "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-extensions", "--disable-default-apps", "--hide-scrollbars", "--lang=en",
)  # fmt: skip
R = TypeVar("R")


def find() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Chromium:
    """One browser with one page. Times are limits, not waits."""

    def __init__(self, program: str, profile: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._profile = profile
        self._process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._number = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self.requests: list[str] = []  # every URL that was asked for
        self.complaints: list[str] = []  # what the console shows as an error or a warning, and what was thrown
        try:
            self._run(self._connect())
            for domain in ("Page", "Runtime", "Network", "Log"):
                self.call(f"{domain}.enable")
        except BaseException:
            self.close()
            raise

    # --- pages

    def open(self, url: str) -> None:
        """Load a page from scratch; what was kept of another is forgotten."""
        self.call("Page.navigate", url="about:blank")
        self.wait("location.href === 'about:blank' && document.readyState === 'complete'")
        self.requests.clear()
        self.complaints.clear()
        self.call("Page.navigate", url=url)
        self.wait("location.href !== 'about:blank' && document.readyState === 'complete'")

    def value(self, expression: str) -> Any:
        """What JavaScript says; a promise is waited for."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, expression: str) -> None:
        """Until JavaScript says so."""
        end_s = time.monotonic() + PATIENCE_S
        while not self.value(f"Boolean({expression})"):
            assert time.monotonic() < end_s, f"it never is: {expression}; the page says: {self.complaints}"
            self._run(asyncio.sleep(0.05))

    def text(self, selector: str) -> str:
        return str(self.value(f"document.querySelector({json.dumps(selector)}).textContent"))

    def type(self, selector: str, text: str) -> None:
        """As a person does: into what has the focus, then the Enter key."""
        self.value(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.focus(); e.value = ''; }})()")
        self.call("Input.insertText", text=text)
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r")

    def resize(self, width: int, height: int, is_phone: bool = False) -> None:
        scale = 2 if is_phone else 1
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=is_phone)

    def prefer(self, scheme: str) -> None:
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, path: Path) -> None:
        """The whole page, as a PNG file."""
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))

    # --- the protocol

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._run(asyncio.wait_for(self._call(method, parameters), PATIENCE_S))

    def close(self) -> None:
        if hasattr(self, "_session"):
            self._run(self._session.close())
        self._run(asyncio.sleep(0))
        self._loop.close()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _run(self, work: Coroutine[Any, Any, R]) -> R:
        return self._loop.run_until_complete(work)

    async def _connect(self) -> None:
        port = await self._port()
        self._session = aiohttp.ClientSession()
        async with self._session.get(f"http://127.0.0.1:{port}/json/list") as answer:
            pages = [page for page in await answer.json() if page["type"] == "page"]
        self._socket = await self._session.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=1 << 27)

    async def _port(self) -> int:
        file, end_s = self._profile / "DevToolsActivePort", time.monotonic() + PATIENCE_S
        while not file.is_file() or not file.read_text().strip():
            assert self._process.poll() is None, f"Chromium has ended with status {self._process.returncode}"
            assert time.monotonic() < end_s, "Chromium does not open its port"
            await asyncio.sleep(0.05)
        return int(file.read_text().split()[0])

    async def _call(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        number = self._number
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        while number not in self._answers:
            self._take(await self._socket.receive_json())
        answer = self._answers.pop(number)
        assert "error" not in answer, (method, answer["error"])
        found: dict[str, Any] = answer["result"]
        return found

    def _take(self, message: dict[str, Any]) -> None:
        if "id" in message:
            self._answers[message["id"]] = message
            return
        told = message["params"]
        match message["method"]:
            case "Network.requestWillBeSent":
                self.requests.append(told["request"]["url"])
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(told["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if told["type"] in ("error", "warning", "assert"):
                self.complaints.append(json.dumps(told["args"]))
            case "Log.entryAdded" if told["entry"]["level"] in ("error", "warning"):
                self.complaints.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")
