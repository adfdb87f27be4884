"""A member that stops has ended when its last sync is over: until then its process runs, and somebody listens at its address."""

import asyncio
from pathlib import Path

import pytest

from phalanx import Config, UnavailableError
from phalanx.cli.member_process import serve
from phalanx.client.ask import Inquirer, ask_member
from phalanx.common.ids import MemberId
from phalanx.runtime.disk.data_folder import DataFolder
from phalanx.runtime.member import Member
from support.disk_logs import until
from support.faulty_files import FaultyFiles


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> FaultyFiles:
    files, real = FaultyFiles(), DataFolder.open
    monkeypatch.setattr(DataFolder, "open", lambda path, **options: real(path, **options | {"files": files}))
    return files


def stop(member: Member) -> None:
    with Inquirer(member.address) as inquirer:
        inquirer.stop_cluster()


@pytest.mark.rows("D-2", "DU-63")
def test_a_stopped_process_ends_and_frees_its_address_behind_its_last_sync(tmp_path: Path, files: FaultyFiles) -> None:
    async def history() -> None:
        config = Config(port=0, data_dir=str(tmp_path / "data"), data_dir_is_lasting=True, partition_count=11)
        ready: asyncio.Future[Member] = asyncio.get_running_loop().create_future()
        process = asyncio.create_task(serve(config, ready.set_result))
        member = await ready
        await member.map("prices").put("apple", 1.2)
        hung = files.hang_next("sync_data")
        await asyncio.to_thread(stop, member)
        await until(lambda: member.has_left, "the member has stopped")
        await until(lambda: hung.is_entered, "its last sync is under way")
        found = await asyncio.to_thread(ask_member, MemberId(member.id), "phalanx", Inquirer.member)
        assert found == member.id
        assert not process.done()
        hung.let_go()
        assert await process == 0
        with pytest.raises(UnavailableError), Inquirer(member.address) as inquirer:
            inquirer.member()

    asyncio.run(asyncio.wait_for(history(), 100))
