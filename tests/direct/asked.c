// A FUSE daemon that writes down what it is asked, a line each, and decides itself who may do what: it has no
// `default_permissions`. One file, "f", the superuser's alone (mode 600). Nothing that it says is believed beyond a call.
//
//     asked LOG [OPTION…] MOUNTPOINT
//
// Locks: it keeps one, of whatever kind. Who is to wait for it waits here, until it is given up or the request is interrupted.
#define FUSE_USE_VERSION 31
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

static FILE *said;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
// Whose the lock is; 0: nobody's.
static uint64_t holder;
static char contents[64];
static size_t length;

static void say(const char *what) {
    fprintf(said, "%s\n", what);
    fflush(said);
}

static void attributes(fuse_ino_t id, struct stat *out) {
    memset(out, 0, sizeof *out);
    out->st_ino = id;
    out->st_nlink = 1;
    out->st_mode = id == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0600;
    out->st_size = id == FUSE_ROOT_ID ? 0 : (off_t)length;
}

static void as_lookup(fuse_req_t req, fuse_ino_t dir, const char *name) {
    (void)dir;
    say("lookup");
    if (strcmp(name, "f")) {
        fuse_reply_err(req, ENOENT);
        return;
    }
    struct fuse_entry_param entry = {.ino = 2};
    attributes(2, &entry.attr);
    fuse_reply_entry(req, &entry);
}

static void as_getattr(fuse_req_t req, fuse_ino_t id, struct fuse_file_info *fi) {
    (void)fi;
    struct stat out;
    say("getattr");
    attributes(id, &out);
    fuse_reply_attr(req, &out, 0);
}

static int refuses(fuse_req_t req) { return fuse_req_ctx(req)->uid ? EACCES : 0; }

static void as_access(fuse_req_t req, fuse_ino_t id, int want) {
    (void)want;
    say("access");
    fuse_reply_err(req, id == FUSE_ROOT_ID ? 0 : refuses(req));
}

static void as_open(fuse_req_t req, fuse_ino_t id, struct fuse_file_info *fi) {
    (void)id;
    say("open");
    if (refuses(req))
        fuse_reply_err(req, EACCES);
    else
        fuse_reply_open(req, fi);
}

static void as_read(fuse_req_t req, fuse_ino_t id, size_t size, off_t at, struct fuse_file_info *fi) {
    (void)id, (void)fi;
    say("read");
    size_t from = (size_t)at < length ? (size_t)at : length;
    fuse_reply_buf(req, contents + from, size < length - from ? size : length - from);
}

static void as_release(fuse_req_t req, fuse_ino_t id, struct fuse_file_info *fi) {
    (void)id;
    say("release");
    pthread_mutex_lock(&mutex);
    if (fi->flock_release && holder == fi->lock_owner) {
        holder = 0;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&mutex);
    fuse_reply_err(req, 0);
}

static void as_flush(fuse_req_t req, fuse_ino_t id, struct fuse_file_info *fi) {
    (void)id;
    say("flush");
    pthread_mutex_lock(&mutex);
    if (holder == fi->lock_owner) {
        holder = 0;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&mutex);
    fuse_reply_err(req, 0);
}

static void interrupted(fuse_req_t req, void *data) {
    (void)req, (void)data;
    pthread_mutex_lock(&mutex);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

// Takes the lock, or waits for it.
static void take(fuse_req_t req, uint64_t owner, int waits) {
    int error = 0;
    fuse_req_interrupt_func(req, interrupted, NULL);
    pthread_mutex_lock(&mutex);
    if (waits && holder && holder != owner)
        say("waits");
    while (!error && holder && holder != owner) {
        if (!waits)
            error = EAGAIN;
        else if (fuse_req_interrupted(req))
            error = EINTR;
        else
            pthread_cond_wait(&changed, &mutex);
    }
    if (!error)
        holder = owner;
    say(error == EINTR ? "interrupted" : error ? "refused" : "locked");
    pthread_mutex_unlock(&mutex);
    fuse_req_interrupt_func(req, NULL, NULL);
    fuse_reply_err(req, error);
}

static void give(fuse_req_t req, uint64_t owner) {
    pthread_mutex_lock(&mutex);
    if (holder == owner) {
        holder = 0;
        pthread_cond_broadcast(&changed);
    }
    say("unlocked");
    pthread_mutex_unlock(&mutex);
    fuse_reply_err(req, 0);
}

static void as_setlk(fuse_req_t req, fuse_ino_t id, struct fuse_file_info *fi, struct flock *lock, int sleep) {
    (void)id;
    if (lock->l_type == F_UNLCK)
        give(req, fi->lock_owner);
    else
        take(req, fi->lock_owner, sleep);
}

static void as_flock(fuse_req_t req, fuse_ino_t id, struct fuse_file_info *fi, int op) {
    (void)id;
    if ((op & ~LOCK_NB) == LOCK_UN)
        give(req, fi->lock_owner);
    else
        take(req, fi->lock_owner, !(op & LOCK_NB));
}

static void as_init(void *data, struct fuse_conn_info *connection) {
    (void)data;
    connection->want |= connection->capable & (FUSE_CAP_POSIX_LOCKS | FUSE_CAP_FLOCK_LOCKS);
}

static const struct fuse_lowlevel_ops operations = {
    .init = as_init, .lookup = as_lookup, .getattr = as_getattr, .access = as_access, .open = as_open, .read = as_read,
    .release = as_release, .flush = as_flush, .setlk = as_setlk, .flock = as_flock,
};

int main(int count, char **words) {
    if (count < 3 || !(said = fopen(words[1], "w")))
        return 2;
    strcpy(contents, "contents\n");
    length = strlen(contents);
    words[1] = words[0];
    struct fuse_args args = FUSE_ARGS_INIT(count - 1, words + 1);
    struct fuse_cmdline_opts options;
    if (fuse_parse_cmdline(&args, &options))
        return 2;
    struct fuse_session *session = fuse_session_new(&args, &operations, sizeof operations, NULL);
    if (!session || fuse_set_signal_handlers(session) || fuse_session_mount(session, options.mountpoint))
        return 1;
    int result = fuse_session_loop_mt(session, 0);
    fuse_session_unmount(session);
    return result != 0;
}
