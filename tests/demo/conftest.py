"""Input for the demo that is small enough to be read at once."""

from pathlib import Path

import pytest

LINES = {
    "airlines": ["carrier,name", "B6,JetBlue Airways", "UA,United Air Lines Inc."],
    "airports": [
        "faa,name,lat,lon,alt,tz,dst,tzone",
        "JFK,John F Kennedy Intl,40.6,-73.7,13,-5,A,America/New_York",
        "EEN,Dillant,72.27,42.8,149,-5,A,NA",
    ],
    "planes": [
        "tailnum,year,type,manufacturer,model,engines,seats,speed,engine",
        "N1,2004,Fixed wing,EMBRAER,EMB,2,55,NA,Turbo-fan",
        "N2,NA,Fixed wing,BOEING,737,2,149,432,Turbo-jet",
    ],
    "weather": [
        "origin,year,month,day,hour,temp,dewp,humid,wind_dir,wind_speed,wind_gust,precip,pressure,visib,time_hour",
        "JFK,2013,1,1,5,39.0,26.1,59.4,270,3.4,NA,0,1012.1,10,2013-01-01T10:00:00Z",
        "JFK,2013,1,1,6,39.0,26.1,59.4,270,17.3,26.5,0,NA,10,2013-01-01T11:00:00Z",
    ],
    "flights": [
        "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,tailnum,origin,"
        "dest,air_time,distance,hour,minute,time_hour",
        "2013,1,1,517,515,2,830,819,11,UA,1545,N1,JFK,IAH,227,1400,5,15,2013-01-01T10:00:00Z",
        "2013,1,1,533,529,4,850,830,20,UA,1714,NA,JFK,IAH,227,1416,5,29,2013-01-01T10:00:00Z",
        "2013,1,1,NA,600,NA,NA,850,NA,B6,1141,N2,JFK,MIA,NA,1089,6,0,2013-01-01T11:00:00Z",
        "2013,1,1,640,600,40,850,900,-10,B6,725,N2,JFK,BQN,183,1576,6,0,2013-01-01T11:00:00Z",
    ],
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with the five files, unpacked."""
    folder = tmp_path / "data"
    folder.mkdir()
    for name, lines in LINES.items():
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return folder
