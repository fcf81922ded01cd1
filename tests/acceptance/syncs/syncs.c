/*
 * Records writes to database files, their syncs, and sends on sockets. Each call is recorded twice, before it is made and
 * after it has returned, each time with the next number of one counter. No call is delayed or changed. Loaded with
 * LD_PRELOAD; SYNCS_LOG is the file to write to, SYNCS_DATABASE the prefix of the recorded paths.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum call { WRITE = 1, SYNC = 2, TRUNCATE = 3, SEND = 4 };
enum { BEFORE = 0, AFTER = 1, MOST_PARTS = 1024, LONGEST_PATH = 4096, MARK = 0x434e5953 };

/* 48 bytes, little-endian on every machine that this runs on; then the path, then the data. */
struct record {
    uint64_t number;
    uint64_t begun; /* the number of this call's first record */
    int64_t place;  /* offset of a write, new size of a truncation */
    int64_t result; /* of the call, in its second record */
    uint32_t pid;
    uint32_t size; /* of the data that follows */
    uint16_t path; /* its length; for a socket the "path" is its peer's address */
    uint8_t call;
    uint8_t when;
    uint32_t mark; /* detects a record that a kill cut off */
};

static uint64_t counter;
static int log_file = -1;
static const char *database;

__attribute__((constructor)) static void set_up(void) {
    const char *name = getenv("SYNCS_LOG");
    database = getenv("SYNCS_DATABASE");
    if (name != NULL && database != NULL)
        log_file = (int)syscall(SYS_openat, AT_FDCWD, name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

/* One record is one write to a file opened for appending, so that records of several threads do not mix. */
static void write_record(const struct record *record, const char *path, const struct iovec *parts, int count) {
    struct iovec all[MOST_PARTS + 2];
    size_t size = sizeof *record + record->path + record->size;
    all[0] = (struct iovec){(void *)record, sizeof *record};
    all[1] = (struct iovec){(void *)path, record->path};
    if (count > 0)
        memcpy(all + 2, parts, (size_t)count * sizeof *parts);
    if (syscall(SYS_writev, log_file, all, count + 2) != (long)size)
        abort();
}

static uint64_t next_number(void) { return __atomic_add_fetch(&counter, 1, __ATOMIC_SEQ_CST); }

static size_t total(const struct iovec *parts, int count) {
    size_t size = 0;
    for (int at = 0; at < count; at++)
        size += parts[at].iov_len;
    return size;
}

/* The length of the path; 0: this file is not recorded. */
static size_t path_of(int fd, char *path) {
    char link[40] = "/proc/self/fd/";
    char digits[12];
    int at = 14, many = 0;
    for (int rest = fd; many == 0 || rest > 0; rest /= 10)
        digits[many++] = (char)('0' + rest % 10);
    while (many > 0)
        link[at++] = digits[--many];
    ssize_t length = readlink(link, path, LONGEST_PATH);
    size_t wanted = strlen(database);
    return length >= (ssize_t)wanted && memcmp(path, database, wanted) == 0 ? (size_t)length : 0;
}

/* The first record of a call. Returns its number; 0: the call is not recorded. */
static uint64_t before(enum call call, int fd, int64_t place, const struct iovec *parts, int count) {
    char path[LONGEST_PATH];
    struct stat kind;
    struct record record = {.mark = MARK};
    int kept = errno;
    if (log_file < 0 || fd < 0 || fd == log_file || count > MOST_PARTS || fstat(fd, &kind) != 0)
        goto out;
    if (S_ISSOCK(kind.st_mode)) {
        socklen_t length = sizeof(struct sockaddr_storage);
        if (getpeername(fd, (struct sockaddr *)path, &length) == 0 && ((struct sockaddr *)path)->sa_family != AF_UNIX)
            record.path = (uint16_t)length;
        call = SEND;
    } else if (S_ISREG(kind.st_mode) && call != SEND) {
        record.path = (uint16_t)path_of(fd, path);
    }
    if (record.path == 0)
        goto out;
    record.begun = record.number = next_number();
    record.place = place;
    record.pid = (uint32_t)getpid();
    record.size = (uint32_t)total(parts, count);
    record.call = (uint8_t)call;
    record.when = BEFORE;
    write_record(&record, path, parts, count);
out:
    errno = kept;
    return record.begun;
}

static long after(uint64_t begun, long result) {
    int kept = errno;
    if (begun != 0) {
        struct record record = {.begun = begun, .result = result, .pid = (uint32_t)getpid(), .when = AFTER, .mark = MARK};
        record.number = next_number();
        write_record(&record, NULL, NULL, 0);
    }
    errno = kept;
    return result;
}

static ssize_t placed(int fd, const void *data, size_t size, off_t place) {
    struct iovec part = {(void *)data, size};
    uint64_t begun = before(WRITE, fd, place, &part, 1);
    return after(begun, syscall(SYS_pwrite64, fd, data, size, place));
}

static int synced(long name, int fd) {
    uint64_t begun = before(SYNC, fd, 0, NULL, 0);
    return (int)after(begun, syscall(name, fd));
}

static int truncated(int fd, off_t size) {
    uint64_t begun = before(TRUNCATE, fd, size, NULL, 0);
    return (int)after(begun, syscall(SYS_ftruncate, fd, size));
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t place) { return placed(fd, data, size, place); }
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t place) { return placed(fd, data, size, place); }
int fsync(int fd) { return synced(SYS_fsync, fd); }
int fdatasync(int fd) { return synced(SYS_fdatasync, fd); }
int ftruncate(int fd, off_t size) { return truncated(fd, size); }
int ftruncate64(int fd, off64_t size) { return truncated(fd, size); }

ssize_t write(int fd, const void *data, size_t size) {
    struct iovec part = {(void *)data, size};
    uint64_t begun = before(WRITE, fd, lseek(fd, 0, SEEK_CUR), &part, 1);
    return after(begun, syscall(SYS_write, fd, data, size));
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    uint64_t begun = before(WRITE, fd, lseek(fd, 0, SEEK_CUR), parts, count);
    return after(begun, syscall(SYS_writev, fd, parts, count));
}

ssize_t sendto(int fd, const void *data, size_t size, int flags, const struct sockaddr *to, socklen_t length) {
    struct iovec part = {(void *)data, size};
    uint64_t begun = before(SEND, fd, 0, &part, 1);
    return after(begun, syscall(SYS_sendto, fd, data, size, flags, to, length));
}

ssize_t send(int fd, const void *data, size_t size, int flags) { return sendto(fd, data, size, flags, NULL, 0); }

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    uint64_t begun = before(SEND, fd, 0, message->msg_iov, (int)message->msg_iovlen);
    return after(begun, syscall(SYS_sendmsg, fd, message, flags));
}
