// Instructions that do nothing and that the plugin knows: a nop of eight bytes with a number in it.
#pragma once
#define MARK(id) __asm__ volatile(".byte 0x0f, 0x1f, 0x84, 0x00, %c0, 0x62, 0x79, 0x70" ::"i"(id) : "memory")

// A call is traced from the mark of its number to END.
#define CALLS(X) \
    X(1, "nothing") X(2, "stat") X(3, "access") X(4, "negative lookup") X(5, "open+close") X(6, "create+close") \
    X(7, "rename") X(8, "unlink") X(9, "mkdir") X(10, "rmdir") X(11, "pread 4 KiB") X(12, "overwrite 4 KiB") \
    X(13, "append 4 KiB")
// On which file system.
#define FILE_SYSTEMS(X) \
    X(100, "tmpfs") X(101, "ext4") X(102, "xfs") X(103, "btrfs") X(104, "f2fs") X(105, "ext4-dax") X(106, "image")

enum { ARM_TRACE = 200, ARM_CACHE = 201, DISARM = 202, CACHE_BEGIN = 203, END = 255 };
