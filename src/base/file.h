/* file.h - files under names that others can guess: those of a store and of its locks, weir.yaml.
 *
 * Another user who may write to the directory can put something under such a name before we do.
 * So a file is used only if
 *   (1) it is of the kind that is expected, and no symbolic link;
 *   (2) it belongs to the caller or to root; to anybody, if the caller is root;
 *   (3) not everybody may write to it;
 *   (4) it has no other name, if that is asked for: no hard link, and not mounted by itself;
 *   (5) nobody else can rename it: no directory above it may be written by everybody, unless it is
 *       sticky as /tmp is.
 * FILE_INSECURE gives up (2), (3) and (5).
 *
 * A refusal is WEIR_EMISUSE, or WEIR_EINVAL for the wrong kind, and says what to do about it.
 */
#ifndef WEIR_BASE_FILE_H
#define WEIR_BASE_FILE_H

#include "weir.h"

#include <stdbool.h>
#include <sys/types.h>

enum {
    FILE_INSECURE = 1,  /* the user has said so                                     */
    FILE_DIRECTORY = 2, /* a directory is expected; else a file                     */
    FILE_ONE_NAME = 4,  /* (4)                                                      */
    FILE_ANY_KIND = 8,  /* (1) is left out: a pipe is as good as a file             */
    FILE_ROOTS_OWN = 16 /* (2) for root as well: for what will be executed          */
};

/* As openat, but never through a symbolic link in the last place, never waiting for the other end
 * of a pipe, closed on exec, and never one of the descriptors 0 to 2, which belong to the program
 * even if it has closed them. -1: errno. What was opened is then judged. */
int weir__file_open(int at, const char *name, int flags, mode_t mode);
/* What the errno of a failed weir__file_open means: a refusal, or WEIR_OK if it is none. */
weir_status weir__file_open_judge(int code, const char *path, int flags, weir_error *err);

/* Judges an open file. path: for messages. */
weir_status weir__file_judge(int fd, const char *path, int flags, weir_error *err);
/* Judges a name without opening it, which would end SQLite's locks when it is closed again. What is
 * not there is WEIR_OK. */
weir_status weir__file_judge_name(const char *path, int flags, weir_error *err);
/* Judges a path as the user gave it, before symbolic links are resolved: a link must lead
 * somewhere, and must be (2) as well; for root too, where every user may put a link. */
weir_status weir__file_judge_given(const char *path, int flags, weir_error *err);
/* Judges the directories above: (5). path: absolute, symbolic links resolved. */
weir_status weir__file_judge_above(const char *path, int flags, weir_error *err);

/* Gives a file that was just made beside a database the owner (if we are root) and the permissions
 * of that database, so that the same users may write to both. Best effort: if that is refused the
 * file stays ours, and other users get a clear error. */
void weir__file_match(int fd, const char *database);

#endif
