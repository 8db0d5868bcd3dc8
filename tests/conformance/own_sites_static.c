// ways: short both kernel
// flags: -O1 -pthread -mavx -mno-red-zone -static
// seconds: 120
// The same for a static program, all of whose calls are its own.
#include "own_sites.c"
