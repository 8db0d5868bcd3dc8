//! Attaching: two at a time, what is no image, segments that nobody needs, how long it takes.

use super::*;

/// Goal: two attachments see each other's changes.
#[test]
fn two_attachments() {
    let test = TestFs::new(64 << 20);
    let thread = Thread::new();
    let second = test.image.attach(&thread).unwrap();
    let cx2 = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
    let node = test.create(&test.cx(), test.root_node(), b"x", &FILE).unwrap();
    assert_eq!(second.lookup(&cx2, second.root_node(), b"x").unwrap(), node);
    second.unlink(&cx2, second.root_node(), b"x").unwrap();
    assert!(test.lookup(&test.cx(), test.root_node(), b"x").is_err());
    second.detach(&cx2);
}

/// Goal: one clear error for each thing that is not an image. Method: damage a copy each time.
#[test]
fn bad_images() {
    let thread = Thread::new();
    let refused = |damage: &dyn Fn(&TestImage)| {
        let image = TestImage::new(16 << 20);
        damage(&image);
        image.attach(&thread).unwrap_err()
    };
    let write = |image: &TestImage, at: u64, bytes: &[u8]| {
        let file = std::fs::File::options().write(true).open(image.file()).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, bytes, at).unwrap();
    };
    assert_eq!(refused(&|i| drop(std::fs::remove_file(i.file()))), AttachError::Open(Errno::ENOENT));
    assert_eq!(refused(&|i| std::fs::write(i.file(), "no image").unwrap()), AttachError::NotAnImage);
    assert_eq!(refused(&|i| std::fs::write(i.file(), "").unwrap()), AttachError::NotAnImage);
    assert_eq!(refused(&|i| [0, 4096].iter().for_each(|at| write(i, at + 8, &[9]))), AttachError::Version(9));
    assert_eq!(refused(&|i| [0, 4096].iter().for_each(|at| write(i, at + 60, &[9]))), AttachError::Damaged);
    assert_eq!(refused(&|i| write(i, 0x2008, &[0xff; 8])), AttachError::Damaged);
    let truncated = refused(&|i| std::fs::File::options().write(true).open(i.file()).unwrap().set_len(5 << 20).unwrap());
    assert!(matches!(truncated, AttachError::Truncated { .. }), "{truncated:?}");
    assert_eq!(
        refused(&|i| {
            std::fs::remove_file(i.file()).unwrap();
            std::fs::create_dir(i.file()).unwrap();
        }),
        AttachError::NotAnImage
    );
    // One copy is enough.
    let image = TestImage::new(16 << 20);
    write(&image, 0, &[0; 128]);
    assert!(image.attach(&thread).is_ok());
}

/// Goal: a segment whose image was removed does not stay for ever. Method: a
/// process dies with its image; the next segment made in the same directory sweeps.
#[test]
fn needless_segments_are_swept() {
    let segments = |directory: &str| {
        let names = std::fs::read_dir(directory).unwrap().flatten().map(|entry| entry.file_name());
        names.filter(|name| name.to_string_lossy().starts_with("bypath-")).count()
    };
    let gone = TestImage::new(16 << 20);
    // SAFETY: the child kills itself.
    let pid = unsafe { fork() };
    if pid == 0 {
        gone.attach(&Thread::new()).unwrap();
        // SAFETY: kills itself.
        unsafe { kill(pm::host::own_pid() as i32, 9) };
    }
    assert_eq!(wait(pid), -9);
    std::fs::remove_file(gone.file()).unwrap();
    assert_eq!(segments(gone.directory()), 1);
    let image = TestImage::new(16 << 20);
    let thread = Thread::new();
    let options = crate::process::Options { segment_dir: Some(gone.directory().as_bytes()), ..Default::default() };
    image.attach_with(&thread, &options).unwrap();
    assert_eq!(segments(gone.directory()), 1);
    // The segment of a living user stays, whatever became of its image.
    std::fs::remove_file(image.file()).unwrap();
    let third = TestImage::new(16 << 20);
    third.attach_with(&Thread::new(), &options).unwrap();
    assert_eq!(segments(gone.directory()), 2);
}

/// Goal: users whose segment cannot be reached are not joined and not disturbed.
#[test]
fn unreachable_segment() {
    let test = TestFs::new(16 << 20);
    std::fs::remove_file(String::from_utf8(test.segment_path().to_vec()).unwrap()).unwrap();
    assert_eq!(test.image.attach(&Thread::new()).unwrap_err(), AttachError::InUse);
    assert!(test.create(&test.cx(), test.root_node(), b"still", &FILE).is_ok());
}

/// Measures attaching: joining, after a death of everybody, after a restart
/// (no segment). Each in a process of its own. `cargo test --release attach_times -- --ignored --nocapture`.
#[test]
#[ignore = "measures"]
fn attach_times() {
    let measure = |image: &TestImage, what: &str| {
        let path = format!("{}/time", image.directory());
        let mut times: std::vec::Vec<u64> = (0..15)
            .map(|_| {
                if what == "restart" {
                    for entry in std::fs::read_dir(image.directory()).unwrap().flatten() {
                        if entry.file_name().to_string_lossy().starts_with("bypath-") {
                            std::fs::remove_file(entry.path()).unwrap();
                        }
                    }
                }
                // SAFETY: the child measures and ends.
                let pid = unsafe { fork() };
                if pid == 0 {
                    let thread = Thread::new();
                    let start = std::time::Instant::now();
                    let fs = image.attach(&thread).unwrap();
                    let time = start.elapsed().as_nanos() as u64;
                    std::fs::write(&path, time.to_string()).unwrap();
                    if what == "orderly" {
                        fs.detach(&Cx { cred: Cred::ROOT, umask: 0, thread: &thread });
                    }
                    // SAFETY: ends the child.
                    unsafe { _exit(0) };
                }
                assert_eq!(wait(pid), 0);
                std::fs::read_to_string(&path).unwrap().parse().unwrap()
            })
            .collect();
        times.sort_unstable();
        std::println!("{what:>10}: {:6} ns, worst {:6}", times[times.len() / 2], times[times.len() - 1]);
    };
    for files in [1_000, 200_000] {
        let test = TestFs::new(2 << 30);
        let cx = test.cx();
        let start = std::time::Instant::now();
        for i in 0..files {
            test.create(&cx, test.root_node(), format!("file {i}").as_bytes(), &FILE).unwrap();
        }
        std::println!("{files} files, {} ns a create", start.elapsed().as_nanos() / files);
        measure(&test.image, "join");
        test.detach(&cx);
        measure(&test.image, "alone");
        measure(&test.image, "orderly");
        measure(&test.image, "restart");
        let start = std::time::Instant::now();
        assert_eq!(crate::check::run(&test.image.path(), &mut |_| {}).unwrap().issues, []);
        std::println!("     check: {} ms", start.elapsed().as_millis());
    }
}
