/* file.c - see file.h. Everything is judged by what is open, or, for files that SQLite has locked,
 * by name, before and after it was opened. */
#define _GNU_SOURCE /* statx */

#include "base/file.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define INSECURE_HINT "accept it with --insecure (in the URL of the store: insecure=1)"

int weir__file_open(int at, const char *name, int flags, mode_t mode)
{
    const int fd =
        openat(at, name, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, (unsigned)mode);
    if (fd < 0 || fd > STDERR_FILENO) {
        return fd;
    }
    const int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    const int code = errno;
    (void)close(fd);
    errno = code;
    return moved;
}

static weir_status refuse_link(const char *path, weir_error *err)
{
    const weir_status status = weir__fail(err, WEIR_EMISUSE, "\"%s\" is a symbolic link", path);
    weir__error_detail(err, "Weir follows no link here: it could lead to any file. Remove it.");
    return status;
}

static weir_status refuse_owner(const char *path, uid_t owner, weir_error *err)
{
    const weir_status status =
        weir__fail(err, WEIR_EMISUSE, "\"%s\" belongs to user %lu, neither to you nor to root",
                   path, (unsigned long)owner);
    weir__error_detail(err, "That user can change it at any time. Change its owner with chown, "
                            "or " INSECURE_HINT ".");
    return status;
}

static weir_status refuse_links_owner(const char *path, uid_t owner, weir_error *err)
{
    const weir_status status = weir__fail(
        err, WEIR_EMISUSE, "\"%s\" is a symbolic link of user %lu, which is neither you nor root",
        path, (unsigned long)owner);
    weir__error_detail(err, "That user can let it lead to any file. Use the path that it leads to, "
                            "change the link's owner with chown -h, or " INSECURE_HINT ".");
    return status;
}

static weir_status refuse_kind(const char *path, mode_t mode, int flags, weir_error *err)
{
    return S_ISLNK(mode) ? refuse_link(path, err)
                         : weir__fail(err, WEIR_EINVAL, "\"%s\" is not a %s", path,
                                      (flags & FILE_DIRECTORY) != 0 ? "directory" : "file");
}

/* SQLite's write-ahead log and Weir's locks are beside a name, not beside the file. */
static weir_status judge_names(const struct statx *st, const char *path, weir_error *err)
{
    if (st->stx_nlink > 1) {
        const weir_status status =
            weir__fail(err, WEIR_EMISUSE, "\"%s\" has %lu names (hard links)", path,
                       (unsigned long)st->stx_nlink);
        weir__error_detail(err,
                           "A store's log and locks belong to its name: two names would be two "
                           "stores in one file. Find them with find -samefile, keep one, and "
                           "copy instead of linking.");
        return status;
    }
    if ((st->stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0) {
        const weir_status status =
            weir__fail(err, WEIR_EMISUSE, "\"%s\" is mounted as a single file", path);
        weir__error_detail(err, "A store's log and locks are beside it and would not be shared: "
                                "mount the directory instead.");
        return status;
    }
    return WEIR_OK;
}

static bool is_trusted(uid_t owner, int flags)
{
    const uid_t us = geteuid();
    return owner == 0 || owner == us || (us == 0 && (flags & FILE_ROOTS_OWN) == 0) ||
           (flags & FILE_INSECURE) != 0;
}

static weir_status owner_judge(const struct statx *st, const char *path, int flags, weir_error *err)
{
    if ((flags & FILE_ANY_KIND) == 0 &&
        !((flags & FILE_DIRECTORY) != 0 ? S_ISDIR(st->stx_mode) : S_ISREG(st->stx_mode))) {
        return refuse_kind(path, st->stx_mode, flags, err);
    }
    if (!is_trusted(st->stx_uid, flags)) {
        return refuse_owner(path, st->stx_uid, err);
    }
    if ((st->stx_mode & S_IWOTH) != 0 && (flags & FILE_INSECURE) == 0) {
        const weir_status status =
            weir__fail(err, WEIR_EMISUSE, "every user may write to \"%s\"", path);
        weir__error_detail(err, "Run chmod o-w on it, or " INSECURE_HINT ".");
        return status;
    }
    return (flags & FILE_ONE_NAME) != 0 ? judge_names(st, path, err) : WEIR_OK;
}

static weir_status could_not_look(int code, const char *path, weir_error *err)
{
    char text[128];
    /* The GNU form, which always gives a text. */
    const weir_status status = weir__fail(err, WEIR_EIO, "could not look at \"%s\": %s", path,
                                          strerror_r(code, text, sizeof text));
    weir__error_store_code(err, "%d", code);
    return status;
}

weir_status weir__file_judge(int fd, const char *path, int flags, weir_error *err)
{
    struct statx st;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &st) != 0) {
        return could_not_look(errno, path, err);
    }
    return owner_judge(&st, path, flags, err);
}

weir_status weir__file_judge_name(const char *path, int flags, weir_error *err)
{
    struct statx st;
    if (statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &st) != 0) {
        return errno == ENOENT ? WEIR_OK : could_not_look(errno, path, err);
    }
    return owner_judge(&st, path, flags, err);
}

weir_status weir__file_open_judge(int code, const char *path, int flags, weir_error *err)
{
    const bool kind = code == ELOOP || code == ENOTDIR || code == EISDIR || code == ENXIO;
    struct stat st;
    return (kind || code == EACCES) && lstat(path, &st) == 0
               ? weir__file_judge_name(path, flags, err)
               : WEIR_OK;
}

/* Whether every user may put something beside that name. */
static bool is_in_open_directory(const char *path)
{
    char above[PATH_MAX];
    struct stat st;
    const char *slash = strrchr(path, '/');
    const int len = slash == NULL
                        ? snprintf(above, sizeof above, ".")
                        : snprintf(above, sizeof above, "%.*s/", (int)(slash - path), path);
    return len > 0 && (size_t)len < sizeof above && stat(above, &st) == 0 &&
           (st.st_mode & S_IWOTH) != 0;
}

weir_status weir__file_judge_given(const char *path, int flags, weir_error *err)
{
    struct stat link, there;
    if (lstat(path, &link) != 0 || !S_ISLNK(link.st_mode)) {
        return WEIR_OK; /* opening it will tell what is wrong */
    }
    if (!is_trusted(link.st_uid, flags | (is_in_open_directory(path) ? FILE_ROOTS_OWN : 0))) {
        return refuse_links_owner(path, link.st_uid, err);
    }
    if (stat(path, &there) != 0 && errno == ENOENT) {
        const weir_status status =
            weir__fail(err, WEIR_EMISUSE, "\"%s\" is a symbolic link to nothing", path);
        weir__error_detail(err, "Nothing is made through a link. Remove it, or put back what it "
                                "leads to.");
        return status;
    }
    return WEIR_OK;
}

weir_status weir__file_judge_above(const char *path, int flags, weir_error *err)
{
    char above[PATH_MAX];
    const int len = snprintf(above, sizeof above, "%s", path);
    if ((flags & FILE_INSECURE) != 0 || len < 0 || (size_t)len >= sizeof above) {
        return WEIR_OK; /* a name that long cannot be opened either */
    }
    for (char *slash; (slash = strrchr(above, '/')) != NULL;) {
        struct stat st;
        slash[slash == above ? 1 : 0] = '\0';
        if (stat(above, &st) == 0 && (st.st_mode & S_IWOTH) != 0 && (st.st_mode & S_ISVTX) == 0) {
            const weir_status status =
                weir__fail(err, WEIR_EMISUSE, "every user may rename what is in \"%s\"", above);
            weir__error_detail(err, "Run chmod o-w on the directory (or chmod +t, as /tmp has it), "
                                    "or " INSECURE_HINT ".");
            return status;
        }
        if (slash == above) {
            break;
        }
    }
    return WEIR_OK;
}

void weir__file_match(int fd, const char *database)
{
    struct stat db, ours;
    if (stat(database, &db) != 0 || fstat(fd, &ours) != 0) {
        return;
    }
    const mode_t mode = db.st_mode & 0666;
    if (geteuid() == 0 && fchown(fd, db.st_uid, db.st_gid) != 0) {
        return;
    }
    (void)fchmod(fd, S_ISDIR(ours.st_mode) ? mode | (mode & 0444) >> 2 : mode);
}
