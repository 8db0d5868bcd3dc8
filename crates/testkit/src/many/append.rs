//! Goal: `O_APPEND` is atomic across processes.
//! Method: each appends numbered records; all must be there, each process's in order.

use super::{Image, expect, wait_all};
use crate::differential::sandbox::spawn;
use crate::image::check;

const RECORD: usize = 16;

fn record(process: u64, number: u64) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    record[..8].copy_from_slice(&process.to_ne_bytes());
    record[8..].copy_from_slice(&number.to_ne_bytes());
    record
}

/// `processes` append `records` each.
pub fn append(processes: u64, records: u64) -> Result<String, String> {
    let image = Image::new("append", 1 << 30);
    let children = (0..processes).map(|process| {
        let image = &image;
        spawn(move |watch| {
            let world = image.world();
            let fd = world.open("/log", libc::O_CREAT | libc::O_APPEND | libc::O_WRONLY);
            expect(fd as isize, || "open".into())?;
            for number in 0..records {
                watch.step(number as usize);
                let written = world.write(fd, &record(process, number));
                if written != RECORD as isize {
                    return Err(format!("record {number}: {written}"));
                }
            }
            expect(world.close(fd), || "close".into())
        })
    });
    wait_all(children.collect(), 60)?;
    let reader = spawn(|_| {
        let world = image.world();
        let fd = world.open("/log", libc::O_RDONLY);
        let mut next = vec![0u64; processes as usize];
        let mut buffer = vec![0u8; RECORD * 4096];
        let mut offset = 0;
        loop {
            let got = world.pread(fd, &mut buffer, offset);
            expect(got, || format!("read at {offset}"))?;
            for record in buffer[..got as usize].chunks(RECORD) {
                let word =
                    |at: usize| record.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(u64::MAX, u64::from_ne_bytes);
                let slot = next.get_mut(word(0) as usize).ok_or_else(|| format!("a torn record near {offset}"))?;
                if word(8) != *slot {
                    return Err(format!("process {}: record {} where {slot} was to be", word(0), word(8)));
                }
                *slot += 1;
            }
            offset += got as u64;
            if got == 0 {
                break;
            }
        }
        if next.iter().any(|&n| n != records) { Err(format!("records lost: {next:?} of {records}")) } else { Ok(()) }
    });
    wait_all(vec![reader], 60)?;
    check(image.path())?;
    Ok(format!("{processes} processes appended {records} records each: none lost, none torn"))
}
