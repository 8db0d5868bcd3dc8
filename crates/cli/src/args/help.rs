//! What `--help` says beside the options: examples, and what they cannot say in a line.

pub(super) const EXAMPLES: &str = "\
Examples:
  bypath run --mount new:1G:/bp -- bash               try it: a file system that goes with the shell
  bypath mkfs /dev/shm/work.img --size 4G             make a file system in a file
  bypath import ~/src /dev/shm/work.img:/src          copy a directory into it
  bypath run --mount /dev/shm/work.img:/bp -- bash    a shell that sees it at /bp
  bypath run --mount /dev/shm/work.img:/bp -- sh -c 'cd /bp/src && make -j2'
  bypath ls -l /dev/shm/work.img:/src                 look into it without running anything
  bypath export /dev/shm/work.img:/src ~/out          copy it out again
  bypath check /dev/shm/work.img                      verify it
  bypath upgrade old.img                              give an older image the current format, in place

An image lives as long as the file that holds it: one in /dev/shm until the next reboot.
ls, cat, stat, export, info and check need only read permission on that file.";

pub(super) const SHRINK_HELP: &str = "\
An image takes space as it grows, and keeps it for files to come. What lies behind its last block in use is given back; free space
between files stays, and the image can grow as large as before. `bypath pack` makes a smaller file of it then.";

pub(super) const STATS_HELP: &str = "\
Calls are counted by each thread for itself and added when it has 4,096 of them, or ends: a program that makes few shows
none for a while. Changes are journal records: made, removed and renamed names, attributes, files that grow. Bytes that are read
or written are not counted.";

pub(super) const IMPORT_HELP: &str = "\
Examples:
  bypath import ~/src work.img:/src                  a tree
  bypath import --unpack linux.tar.zst work.img:/    what is in an archive
  curl -L https://example.org/a.tar.gz | bypath import - work.img:/a

Archive entries are never extracted outside the target. Ownership is kept when run as root. Names that cannot be read are reported
and left out; the exit code is 1 then.";

pub(super) const CLONE_HELP: &str = "\
Examples:
  bypath clone work.img:/main work.img:/agent1     a working tree for each agent
  bypath clone /bp/golden /bp/test1                the same inside a session

All of it is there, or nothing: it is made aside, as .bypath-aside-… in the same directory, and gets its name last. What a
killed clone leaves there goes with the next one. Each file is as it was at one moment; what a program has mapped is copied.
Owners, modes, times, links and extended attributes are kept, as far as the caller may.";

pub(super) const SNAP_HELP: &str = "\
Examples:
  bypath snap work.img:/main monday            as work.img:/main/.snap/monday
  bypath clone /bp/main/.snap/monday /bp/old   back, to be changed

What is below the snapshot's name can only be read, by everybody: all else is EROFS. `bypath drop` removes it. Snapshots are no
part of clones.";

pub(super) const COPY_HELP: &str = "\
Examples:
  bypath copy work.img backup.img
  bypath copy --json --wait 60 work.img backup.img

Nobody is held up. What changes meanwhile is copied again, until nothing has changed for as long as two looks at the image take: then the
copy is the image as it was between the two, and what was half done then is as after a crash. An image that is never at rest
can't be copied so: after --wait seconds that is said, and nothing is left. Where the file system below can share blocks, it does.";

pub(super) const DIFF_HELP: &str = "\
Examples:
  bypath diff work.img:/main work.img:/agent1
  bypath diff /bp/main /bp/agent1

A line a change, in the order of paths: A added, D deleted, M other contents (or target of a symlink), T another type,
P mode, owner or extended attributes alone. A directory that is in one of them only is one line, with / at its end.
What clones still share is not read; times are not compared.";

pub(super) const DROP_HELP: &str = "\
Examples:
  bypath drop work.img:/agent1 work.img:/agent2
  bypath drop /bp/test1

There is no way back. Directories of the caller's that may not be written to are no obstacle. What no other file shares is
free again when it returns.";

pub(super) const RESIZE_HELP: &str = "\
Examples:
  bypath resize work.img 20G

A new image is made beside the old one (work.img.resize), which needs room for both, and takes its name when it is whole; stopped or
killed before, the old one is as it was. Kept: everything but inode numbers and the times of birth and change.";

pub(super) const PACK_HELP: &str = "\
Examples:
  bypath pack work.img work.bpk              nobody may be using the image
  bypath restore work.bpk /dev/shm/work.img
  bypath pack work.img - | ssh host bypath restore - work.img";

pub(super) const ENTER_HELP: &str = "\
Examples:
  bypath enter                       a shell in the only session of this user's
  bypath enter --list                which sessions there are: number, first program, mounts
  bypath enter 4711 -- make test     in the session of that number; or of that image, or that directory

What it starts may go on after the session has ended, except in mounts that are the session's own (fuse:, host:, new:).";

pub(super) const DOCTOR_HELP: &str = "\
Examples:
  bypath doctor                this machine: what is missing, what to do
  bypath doctor rg             and whether the library is loaded into ripgrep, or only a kernel mount serves it

Exit code 0 if sessions work here and the program is served, 1 if not.";

pub(super) const COMPLETIONS_HELP: &str = "\
Examples:
  source <(bypath completions bash)                                  for this shell
  bypath completions bash > ~/.local/share/bash-completion/completions/bypath
  bypath completions zsh > \"${fpath[1]}/_bypath\"
  bypath completions fish > ~/.config/fish/completions/bypath.fish";

pub(super) const MAN_HELP: &str = "\
Examples:
  bypath man | man -l -                     read it
  bypath man ~/.local/share/man/man1        then: man bypath, man bypath-run";

pub(super) const MOUNT_HELP: &str = "\
The mount shows the same files as `bypath run --mount IMG:/dir`, at the same time, with the same inode numbers and locks.
It is for static and set-uid programs, and for users who may not open the image itself: they may do what the modes say.

Examples:
  bypath mount work.img /mnt/work          returns as soon as the mount answers
  bypath mount -o ro work.img /mnt/work    nobody can change anything through it
  bypath umount /mnt/work
  bypath mount --foreground --log /var/log/work.log work.img /mnt/work

As root, or with fusermount3 (package fuse3) for one's own use. Set-id bits and devices count only if nobody but root may write the image.";
