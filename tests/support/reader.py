"""Executes the code blocks of a Markdown page in order, as a reader would who types them in.

* One folder, one shell and one Python of its own for each page; `await` stands at the top level, as in `python -m asyncio`.
* A line `phalanx member …`, `… --watch` or `… --follow` keeps its terminal: it gets one of its own, and ends with the page.
* A block `output` must be what the block before it has printed.
* Ports 5701 to 5709 of a page are free ports of this machine instead, so pages are read beside each other; a range that begins
  there, such as 5701-5720, begins with a free port.
* A block with `title="NAME"` is the file NAME: it is saved under that name, in the page's folder.
* A block marked `no-run` is not executed, nor is one of a language that is not code and has no title; `skipped` counts them.
"""

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from .processes import DEADLINE_S, free_port

FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PORT = re.compile(r"\b(570[1-9])(-57[1-9]\d)?\b")
KEEPS_ITS_TERMINAL = re.compile(r"phalanx member\b[^&]*$|.* --(watch|follow)\b[^&]*$")
EXECUTED = ("sh", "python", "output")
TITLE = re.compile(r'title="(\w[\w.-]*)"')
BUSY = re.compile(r"^\S+ was busy for \d+ ms with one input, .*\n?", re.MULTILINE)
"""What a member logs on a machine that is slow at the moment: no page shows it."""
END = "--- end of the block, status "
LIMIT_S = 180.0

INTERPRETER = f'''
import ast, asyncio, inspect, logging, sys, traceback
logging.basicConfig(filename="python.log")  # a block `output` shows what the program prints, and not its log
commands = sys.stdin
names = {{"__name__": "__main__"}}
while True:
    size = commands.readline()
    if not size:
        break
    line, length = map(int, size.split())
    text = "\\n" * line + commands.read(length)
    status = 0
    try:
        code = compile(text, PAGE, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if code.co_flags & inspect.CO_COROUTINE:
            asyncio.run(eval(code, names))
        else:
            exec(code, names)
    except BaseException:
        traceback.print_exc(file=sys.stdout)
        status = 1
    print("{END}" + str(status), flush=True)
'''


class BlockFailed(AssertionError):
    """A block does not do what the page says; the message has the place, the code and what was printed."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    """Of the page, the first line of the code."""
    language: str
    mark: str
    code: str

    @property
    def is_executed(self) -> bool:
        return bool(self.file_name) or (self.language in EXECUTED and self.mark != "no-run")

    @property
    def file_name(self) -> str:
        """Under which name the block is to be saved; empty: it is no file."""
        found = TITLE.fullmatch(self.mark)
        return found[1] if found else ""


def blocks_of(path: Path, name: str) -> list[Block]:
    """All fenced blocks of a page. Raises `BlockFailed` for a mark that means nothing, and a fence that is not closed."""
    text = path.read_text(encoding="utf-8")
    found = [
        Block(name, text.count("\n", 0, each.start(3)) + 1, each[1], each[2].strip(), each[3])
        for each in FENCE.finditer(text)
    ]
    if text.count("```") != 2 * len(found):
        raise BlockFailed(f"{name}: a fence is indented or not closed: its code would not be executed")
    for block in found:
        if block.mark not in ("", "no-run") and not block.file_name:
            raise BlockFailed(
                f'{name}:{block.line}: the mark {block.mark!r} means nothing; there are no-run and title="NAME"'
            )
    return found


def skipped(blocks: list[Block]) -> dict[str, int]:
    """How many blocks are not executed, by language; `no-run` ones under that name."""
    return dict(Counter(each.mark or each.language or "none" for each in blocks if not each.is_executed))


class Reader:
    """Executes blocks. Use it as a context manager: its processes end with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ports: dict[str, str] = {}
        self._processes: list[subprocess.Popen[str]] = []
        self._tools: dict[str, subprocess.Popen[str]] = {}
        self._printed = ""

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes:
            # The whole group: a shell has members in its background.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def read(self, block: Block) -> None:
        """Execute one block. Raises `BlockFailed`."""
        code = PORT.sub(self._present_ports, block.code)
        if block.file_name:
            (self.folder / block.file_name).write_text(code, encoding="utf-8")
        elif block.language == "output":
            if BUSY.sub("", self._printed).strip() != code.strip():
                raise BlockFailed(f"{block.page}:{block.line} shows\n{code}but this was printed:\n{self._printed}")
        elif block.language == "python":
            self._printed = self._ask(block, "python", f"{block.line - 1} {len(code)}\n{code}", code)
        else:
            self._printed = "".join(self._command(block, line) for line in commands_of(code))

    def _present_ports(self, found: re.Match[str]) -> str:
        """A free port, or a range as long as the page's that begins with one."""
        port, rest = self._port(found[1]), found[2]
        return f"{port}-{int(port) + int(rest[1:]) - int(found[1])}" if rest else port

    def _port(self, name: str) -> str:
        if name not in self._ports:
            self._ports[name] = str(free_port())
        return self._ports[name]

    def _command(self, block: Block, line: str) -> str:
        if not KEEPS_ITS_TERMINAL.match(line.partition("#")[0].strip()):
            return self._ask(block, "sh", f"{line}\nprintf '\\n%s%s\\n' '{END}' $?\n", line)
        # Its output goes to a file, for nobody reads it; that something stands there tells that it has begun.
        log = self.folder / f".terminal-{len(self._processes)}"
        with log.open("w") as output:
            process = self._start(["bash", "-c", f"exec {line}"], subprocess.DEVNULL, output)
        deadline = time.monotonic() + DEADLINE_S
        while not log.stat().st_size or ("phalanx member" in line and "joined the cluster" not in log.read_text()):
            if process.poll() is not None or time.monotonic() > deadline:
                raise BlockFailed(f"{block.page}:{block.line}: {line}\ndid not begin:\n{log.read_text()}")
            time.sleep(0.02)
        return ""

    def _start(self, command: list[str], stdin: int, stdout: IO[str] | int) -> subprocess.Popen[str]:
        bin_folder = str(Path(sys.executable).parent)
        neighbours = self.folder / ".run"  # members of a page are no neighbours of others on this machine
        neighbours.mkdir(mode=0o700, exist_ok=True)
        environment = os.environ | {
            "PATH": f"{bin_folder}:{os.environ['PATH']}",
            "XDG_RUNTIME_DIR": str(neighbours),
            "NO_COLOR": "1",
            "PYTHONUNBUFFERED": "1",
        }
        process = subprocess.Popen(
            command, cwd=self.folder, env=environment, stdin=stdin, stdout=stdout, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip
        self._processes.append(process)
        return process

    def _ask(self, block: Block, language: str, text: str, code: str) -> str:
        """Give code to the page's shell or Python, and wait for its end: what it printed."""
        if language not in self._tools:
            program = f"PAGE = {block.page!r}\n{INTERPRETER}"
            command = {"python": [sys.executable, "-c", program], "sh": ["bash"]}[language]
            self._tools[language] = self._start(command, subprocess.PIPE, subprocess.PIPE)
        tool = self._tools[language]
        assert tool.stdin is not None
        assert tool.stdout is not None
        tool.stdin.write(text)
        tool.stdin.flush()
        printed, deadline = "", time.monotonic() + LIMIT_S
        while "\n" not in printed.partition(END)[2]:
            is_ready, _, _ = select.select([tool.stdout], [], [], max(0.0, deadline - time.monotonic()))
            piece = os.read(tool.stdout.fileno(), 65_536).decode(errors="replace") if is_ready else ""
            printed += piece
            if not piece:
                raise BlockFailed(f"{block.page}:{block.line}: no end within {LIMIT_S:g} s of\n{code}\n{printed}")
        printed, _, rest = printed.partition(END)
        status = rest.partition("\n")[0]  # behind it the shell may say at any time which of its jobs was killed
        if status != "0":
            raise BlockFailed(f"{block.page}:{block.line}: status {status} of\n{code}\n{printed}")
        return printed


def commands_of(code: str) -> list[str]:
    """The commands of a shell block: a line each, with those that go on behind a backslash; no comments alone."""
    lines = code.replace("\\\n", " ").splitlines()
    return [
        line.replace("./run phalanx", "phalanx").replace("./run python", "python")
        for line in lines
        if line.strip() and line[0] != "#"
    ]
