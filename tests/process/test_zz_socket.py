import os
import random
import socket
import time
from pathlib import Path

import anyio
import pytest

from tests.listening.talk import Talk
from tests.process.bridge_support import World
from tests.process.test_bridge_socket import HELLO, listening

pytestmark = pytest.mark.process


def rss(pid):
    return (
        int(
            [
                l
                for l in Path(f"/proc/{pid}/status").read_text().splitlines()
                if l.startswith("VmRSS")
            ][0].split()[1]
        )
        // 1024
    )


def cpu(pid):
    f = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(f[11]) + int(f[12])) / 100


async def lat(client, n=5):
    out = []
    for _ in range(n):
        s = time.monotonic()
        await client.prompt("say hi")
        out.append(round((time.monotonic() - s) * 1000))
    return out


async def fill(sock, data, seconds):
    sent = 0
    end = time.monotonic() + seconds
    sock.setblocking(False)
    while time.monotonic() < end:
        try:
            sent += sock.send(data)
        except BlockingIOError:
            await anyio.sleep(0.002)
        except OSError as e:
            return sent, repr(e)
    return sent, None


@pytest.mark.parametrize("what", ["nothing", "half", "garbage", "requests", "deep", "odd"])
async def test_flood(world: World, what: str) -> None:
    async with world.bridge() as client:
        place = (await listening(world, client)).socket
        pid = client.process.pid
        print(f"\nRR {what} before", await lat(client), rss(pid))
        talks = []
        if what == "nothing":
            for _ in range(70):
                talks.append(Talk(place))
            print("RR", await lat(client), rss(pid), len(os.listdir(f"/proc/{pid}/fd")))
            await anyio.sleep(11)
            print("RR after greeting", len(os.listdir(f"/proc/{pid}/fd")), await lat(client))
        else:
            for _ in range(8):
                t = Talk(place)
                await t.ask("initialize", HELLO)
                talks.append(t)
            base = cpu(pid)
            if what == "half":
                data = b'{"jsonrpc":"2.0","method":"' + b"x" * 65536
            if what == "garbage":
                data = b"garbage\n" * 8192
            if what == "requests":
                data = b'{"jsonrpc":"2.0","id":1,"method":"_acp_bridge/live","params":{}}\n' * 1000
            if what == "deep":
                data = b"[" * 60000 + b"\n"
            if what == "odd":
                data = (
                    b'{"jsonrpc":"2.0","id":1e999,"method":"x"}\n{"jsonrpc":"2.0","id":[1],"method":"initialize"}\n\xff\xfe\n{"id":1,"result":{}}\n{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":{}}}\n{"jsonrpc":"2.0","id":"\\ud800","method":"_acp_bridge/attach","params":{"sessionId":"\\ud800"}}\n\0\n'
                    * 300
                )
            async with anyio.create_task_group() as tg:

                async def one(t):
                    print("RR sent", await fill(t.socket, data, 4))

                for t in talks:
                    tg.start_soon(one, t)
                await anyio.sleep(1)
                print("RR during", await lat(client), rss(pid))
                await anyio.sleep(2)
                print("RR during", await lat(client), rss(pid), "cpu", cpu(pid) - base)
        for t in talks:
            t.close()
        await anyio.sleep(0.5)
        print("RR after", await lat(client), rss(pid), len(os.listdir(f"/proc/{pid}/fd")))


async def test_dying_in_attach(world: World) -> None:
    async with world.bridge() as client:
        place = (await listening(world, client)).socket
        pid = client.process.pid
        await client.prompt("say " + "x" * 2000)
        rnd = random.Random(3)
        fds = len(os.listdir(f"/proc/{pid}/fd"))
        for i in range(150):
            t = Talk(place)
            t.send(id=0, method="initialize", params=HELLO)
            if rnd.random() < 0.8:
                t.send(id=1, method="_acp_bridge/attach", params={"sessionId": client.session_id})
            if rnd.random() < 0.5:
                t.send(
                    id=2,
                    method="session/prompt",
                    params={
                        "sessionId": client.session_id,
                        "prompt": [{"type": "text", "text": "say %d" % i}],
                    },
                )
            if rnd.random() < 0.3:
                t.send(id=3, method="session/cancel", params={"sessionId": client.session_id})
            await anyio.sleep(rnd.random() * 0.02)
            if rnd.random() < 0.3:
                t.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            t.close()
        print("\nRR lat", await lat(client), rss(pid), fds, len(os.listdir(f"/proc/{pid}/fd")))
        t = Talk(place)
        await t.ask("initialize", HELLO)
        print("RR live", await t.ask("_acp_bridge/live", {}, 5))
        t.close()
    world.repeats = True
