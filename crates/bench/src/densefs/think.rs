//! Think time: a program's own code between calls, and how much slower a call makes it. The code is made here: lines of 64 bytes, each
//! counts itself and adds up words of its share of the data's lines, so that its result says what ran. Timed is the code
//! alone, by the processor's clock.

use super::Options;
use crate::calls::{Api, Calls, Libc, text};
use crate::figure::Figure;
use crate::stage::{Directory, kind_of};
use libc::{O_CREAT, O_EXCL, O_RDONLY, O_WRONLY};
use std::ffi::CString;

/// KiB of code and of data.
const SIZES: [(usize, usize); 6] = [(2, 2), (4, 4), (8, 8), (16, 4), (16, 16), (24, 24)];
const CALLS: [&str; 4] = ["stat", "open+close", "create+close", "unlink"];

/// A line of data, read by the made code.
#[repr(align(64))]
#[derive(Clone)]
#[allow(dead_code)]
struct Line([u64; 8]);

/// The instructions: `lines` of code that add up a word of each of `data` lines.
fn made(lines: usize, data: usize) -> Result<Vec<u8>, String> {
    let each = data.div_ceil(lines);
    if lines == 0 || each > 7 {
        return Err(format!("{lines} lines of code cannot read {data} of data"));
    }
    let mut code = Vec::with_capacity(lines * 64);
    for line in 0..lines {
        if line == 0 {
            code.extend([0x31, 0xc0, 0x31, 0xd2]); // xor eax, eax; xor edx, edx
        }
        code.extend([0x48, 0xff, 0xc2]); // inc rdx
        for at in (line * data / lines)..((line + 1) * data / lines) {
            code.extend([0x48, 0x03, 0x87]); // add rax, [rdi + …]
            code.extend((at as u32 * 64).to_le_bytes());
        }
        if line + 1 == lines {
            code.extend([0x48, 0xc1, 0xe2, 0x20, 0x48, 0x09, 0xd0, 0xc3]); // shl rdx, 32; or rax, rdx; ret
        }
        while code.len() + 8 <= (line + 1) * 64 {
            code.extend([0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0]); // a nop of eight bytes
        }
        code.resize((line + 1) * 64, 0x90);
    }
    Ok(code)
}

/// The code, in memory that may be executed.
struct Code {
    at: *mut libc::c_void,
    lines: usize,
    data: Vec<Line>,
}

impl Code {
    #[cfg(target_arch = "x86_64")]
    fn new(lines: usize, data: usize) -> Result<Code, String> {
        let code = made(lines, data)?;
        let failed = || format!("mmap: {}", std::io::Error::last_os_error());
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: new memory.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), code.len(), libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(failed());
        }
        let made = Code { at, lines, data: vec![Line([1, 0, 0, 0, 0, 0, 0, 0]); data] };
        // SAFETY: so many bytes were mapped, for writing.
        unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), at.cast(), code.len()) };
        // SAFETY: the same memory.
        match unsafe { libc::mprotect(at, code.len(), libc::PROT_READ | libc::PROT_EXEC) } {
            0 => Ok(made),
            _ => Err(failed()),
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn new(_: usize, _: usize) -> Result<Code, String> {
        Err("its code is made for x86-64 only".into())
    }

    /// Runs it.
    fn run(&self) -> u64 {
        // SAFETY: `made` has put a function there that takes the data's address, changes registers that are its to change, and returns.
        let code = unsafe { std::mem::transmute::<*mut libc::c_void, extern "C" fn(*const Line) -> u64>(self.at) };
        code(self.data.as_ptr())
    }

    /// Clock ticks of one run, which must have run all its lines.
    fn ticks(&self) -> u64 {
        let begun = clock();
        let counted = self.run();
        let ended = clock();
        assert_eq!(counted, (self.lines as u64) << 32 | self.data.len() as u64, "lines that ran, lines that were read");
        ended - begun
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, that long.
        unsafe { libc::munmap(self.at, self.lines * 64) };
    }
}

#[cfg(target_arch = "x86_64")]
fn clock() -> u64 {
    // SAFETY: no memory is touched; nothing is begun before what came earlier has ended.
    unsafe {
        std::arch::x86_64::_mm_lfence();
        let ticks = std::arch::x86_64::_rdtsc();
        std::arch::x86_64::_mm_lfence();
        ticks
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn clock() -> u64 {
    0
}

/// The mean of what is neither among the least nor among the most tenth: the clock's steps are coarse, and interrupts are long.
fn middle(mut values: Vec<u64>) -> f64 {
    values.sort_unstable();
    let inner = &values[values.len() / 10..values.len() - values.len() / 10];
    inner.iter().sum::<u64>() as f64 / inner.len().max(1) as f64
}

/// The calls and the files they are made on.
struct Asked<'a> {
    calls: &'a dyn Calls,
    files: Vec<CString>,
    fresh: Vec<CString>,
}

impl Asked<'_> {
    fn make(&self, name: &CString) {
        let fd = self.calls.open(name, O_WRONLY | O_CREAT | O_EXCL);
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        self.calls.close(fd);
    }

    fn before(&self, call: &str, i: usize) {
        if call == "unlink" {
            self.make(&self.fresh[i % self.fresh.len()]);
        }
    }

    fn call(&self, call: &str, i: usize) {
        let (file, fresh) = (&self.files[i % self.files.len()], &self.fresh[i % self.fresh.len()]);
        match call {
            "stat" => assert!(self.calls.stat(file) >= 0),
            "open+close" => {
                let fd = self.calls.open(file, O_RDONLY);
                assert!(fd >= 0);
                self.calls.close(fd);
            }
            "create+close" => self.make(fresh),
            _ => assert_eq!(self.calls.unlink(fresh), 0),
        }
    }

    fn after(&self, call: &str, i: usize) {
        if call == "create+close" {
            assert_eq!(self.calls.unlink(&self.fresh[i % self.fresh.len()]), 0);
        }
    }
}

/// By how much the code gets slower, in percent, when a call comes before each run of it.
fn slow_down(code: &Code, asked: &Asked, call: &str, times: usize) -> f64 {
    let own = |_: usize| code.ticks();
    let with = |i: usize| {
        asked.before(call, i);
        // What came before the call that is watched has left the cache to the code again.
        code.run();
        code.run();
        asked.call(call, i);
        let ticks = code.ticks();
        asked.after(call, i);
        ticks
    };
    let nothing = middle(
        (0..times)
            .map(|_| {
                let begun = clock();
                clock() - begun
            })
            .collect(),
    );
    let warm = middle((0..times).map(own).collect()) - nothing;
    let after_calls = middle((0..times).map(with).collect()) - nothing;
    (after_calls / warm.max(1.0) - 1.0) * 100.0
}

/// Figure 4.
pub fn figure(options: &Options) -> Result<Vec<Figure>, String> {
    let (sizes, calls, times): (&[_], &[_], _) =
        if options.output.quick { (&SIZES[1..2], &CALLS[..1], 200) } else { (&SIZES, &CALLS, 2000) };
    let home = std::env::current_dir().map_err(|e| e.to_string())?;
    let places = &options.places;
    let first = Directory::new(&places.image_dir, "densefs")?;
    let second = Directory::new(&places.directory, "densefs-2")?;
    let image = first.0.join("image");
    crate::stage::make_image(&image, 1 << 30)?;
    let names = [String::from("image"), kind_of(&first.0), kind_of(&second.0)];
    let api = Api::open(&text(image.display().to_string()))?;
    let ways: [(&dyn Calls, Option<&std::path::Path>); 3] = [(&api, None), (&Libc, Some(&first.0)), (&Libc, Some(&second.0))];
    let columns: Vec<&str> = names.iter().map(String::as_str).collect();
    let title = format!("how much slower made code runs after each call than without calls, {times} times");
    let mut figure = Figure::new("4", title, "%", &columns).paper(
        "the penalty of a call on the code between calls: DenseFS the smallest throughout, 20 % where others cost up to 150 %.",
    );
    for call in calls {
        for (code_kib, data_kib) in sizes {
            let code = Code::new(code_kib * 16, data_kib * 16)?;
            let mut values = Vec::new();
            for (calls, dir) in ways {
                if let Some(dir) = dir {
                    std::env::set_current_dir(dir).map_err(|e| e.to_string())?;
                }
                let names = |kind: &str| (0..64).map(|i| text(format!("{kind}{i:05}"))).collect::<Vec<_>>();
                let asked = Asked { calls, files: names("there"), fresh: names("fresh") };
                asked.files.iter().for_each(|name| asked.make(name));
                values.push(Some(slow_down(&code, &asked, call, times)));
                asked.files.iter().for_each(|name| assert_eq!(calls.unlink(name), 0));
            }
            figure.row(format!("{call}, {code_kib} KiB of code, {data_kib} of data"), values);
        }
    }
    std::env::set_current_dir(home).map_err(|e| e.to_string())?;
    Ok(vec![figure])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: code of a size runs all its lines and reads all its data. Method: several sizes; what was read counts 1 each.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn code_counts_itself() {
        for (lines, data) in [(1, 1), (1, 7), (16, 100), (256, 64), (384, 384)] {
            assert_eq!(made(lines, data).map(|code| code.len()), Ok(lines * 64));
            let mut code = Code::new(lines, data).unwrap_or_else(|why| panic!("{why}"));
            code.ticks();
            code.data.last_mut().into_iter().for_each(|line| line.0[0] = 5);
            assert_eq!(code.run(), (lines as u64) << 32 | (data as u64 + 4));
        }
        assert!(made(1, 8).is_err());
    }
}
