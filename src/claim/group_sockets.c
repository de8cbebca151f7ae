/* group_sockets.c - the TCP sockets of a process group, by what /proc says.
 *
 * A process that goes away while it is looked at has no sockets; one that belongs to somebody else
 * cannot be looked at, and has none either. Both make an answer "no", never a wrong "yes".
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"
#include "claim/waiters.h"

enum { INODES_MAX = 4096, PATH_BYTES = 64 };

typedef struct inodes {
    uint64_t items[INODES_MAX];
    size_t count;
} inodes;

static bool is_number(const char *text)
{
    size_t i = 0;

    while (isdigit((unsigned char)text[i]) != 0) {
        i++;
    }
    return i > 0 && text[i] == '\0';
}

/* The process group of a process; 0: it is gone. */
static pid_t group_of(const char *pid)
{
    char path[PATH_BYTES], text[1024];
    int group = 0;

    (void)snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    FILE *f = fopen(path, "re");
    if (f == NULL) {
        return 0;
    }
    const size_t len = fread(text, 1, sizeof text - 1, f);
    text[len] = '\0';
    (void)fclose(f);
    const char *end = strrchr(text, ')'); /* the name before it may have anything in it */
    /* NOLINTNEXTLINE(cert-err34-c): the kernel writes numbers */
    return end != NULL && sscanf(end + 1, " %*c %*d %d", &group) == 1 ? group : 0;
}

static void sockets_add(const char *pid, inodes *out)
{
    char path[PATH_BYTES], target[PATH_BYTES];

    (void)snprintf(path, sizeof path, "/proc/%.20s/fd", pid);
    DIR *dir = opendir(path);
    if (dir == NULL) {
        return;
    }
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): the stream is this thread's own */
    for (const struct dirent *e; (e = readdir(dir)) != NULL && out->count < INODES_MAX;) {
        const ssize_t len = readlinkat(dirfd(dir), e->d_name, target, sizeof target - 1);
        if (len > 0) {
            target[len] = '\0';
            if (strncmp(target, "socket:[", 8) == 0) {
                out->items[out->count++] = strtoull(target + 8, NULL, 10);
            }
        }
    }
    (void)closedir(dir);
}

static bool inodes_have(const inodes *list, uint64_t inode)
{
    for (size_t i = 0; i < list->count; i++) {
        if (list->items[i] == inode) {
            return true;
        }
    }
    return false;
}

/* The address of a line of /proc/net/tcp or tcp6 as text, as PostgreSQL writes it: words of 32 bits
 * in the machine's order. */
static bool address_text(const char *hex, char out[INET6_ADDRSTRLEN])
{
    static const unsigned char mapped[12] = { [10] = 0xff, [11] = 0xff };
    uint32_t words[4] = { 0 };
    const size_t count = strlen(hex) / 8;
    unsigned char bytes[16];

    if (count != 1 && count != 4) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        char word[9] = { 0 };
        memcpy(word, hex + i * 8, 8);
        words[i] = (uint32_t)strtoul(word, NULL, 16);
    }
    memcpy(bytes, words, sizeof bytes);
    if (count == 4 && memcmp(bytes, mapped, sizeof mapped) == 0) {
        return inet_ntop(AF_INET, bytes + 12, out, INET6_ADDRSTRLEN) != NULL;
    }
    return inet_ntop(count == 1 ? AF_INET : AF_INET6, bytes, out, INET6_ADDRSTRLEN) != NULL;
}

/* Whether one of the sockets has this end, in the network of a process. */
static bool table_has(const char *pid, const char *table, const inodes *sockets, weir_str address,
                      int64_t port)
{
    char path[PATH_BYTES], line[512], hex[33], text[INET6_ADDRSTRLEN];
    bool found = false;

    (void)snprintf(path, sizeof path, "/proc/%.20s/net/%s", pid, table);
    FILE *f = fopen(path, "re");
    if (f == NULL) {
        return false;
    }
    while (!found && fgets(line, sizeof line, f) != NULL) {
        unsigned local = 0;
        uint64_t inode = 0;
        /* NOLINTNEXTLINE(cert-err34-c): the kernel writes numbers */
        found = sscanf(line, " %*d: %32[0-9A-Fa-f]:%X %*s %*s %*s %*s %*s %*s %*s %" SCNu64, hex,
                       &local, &inode) == 3 &&
                (int64_t)local == port && inodes_have(sockets, inode) && address_text(hex, text) &&
                weir__str_equal(weir__str(text), address);
    }
    (void)fclose(f);
    return found;
}

bool weir__group_has_socket(pid_t group, weir_str address, int64_t port)
{
    inodes *sockets = weir__calloc(1, sizeof *sockets);
    DIR *dir = opendir("/proc");
    bool found = false;

    if (address.len > 7 && strncmp(address.ptr, "::ffff:", 7) == 0) {
        address = (weir_str){ .ptr = address.ptr + 7, .len = address.len - 7 };
    }
    while (!found && sockets != NULL && dir != NULL) {
        /* NOLINTNEXTLINE(concurrency-mt-unsafe): the stream is this thread's own */
        const struct dirent *e = readdir(dir);
        if (e == NULL) {
            break;
        }
        if (is_number(e->d_name) && group_of(e->d_name) == group) {
            sockets->count = 0;
            sockets_add(e->d_name, sockets);
            found = sockets->count > 0 && (table_has(e->d_name, "tcp", sockets, address, port) ||
                                           table_has(e->d_name, "tcp6", sockets, address, port));
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    weir__free(sockets);
    return found;
}
