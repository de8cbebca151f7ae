/* file_test.c - which files are accepted under a name that others can guess. Goal: each rule of
 * file.h by itself, as root and as any other user. Method: files in a directory of our own. Root
 * gives them away, or becomes another user; an ordinary user cannot do that, and looks at root's
 * /etc/passwd instead. */
#include "base/file.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { OTHER_UID = 54321 };

static int enter(void **state)
{
    static char dir[64];
    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/weir-file-XXXXXX");
    return mkdtemp(dir) != NULL && chdir(dir) == 0 && umask(022) != (mode_t)-1 ? 0 : -1;
}

static int leave(void **state)
{
    char command[256], dir[64];
    (void)state;
    assert_non_null(getcwd(dir, sizeof dir));
    assert_int_equal(strncmp(dir, "/tmp/weir-file-", 15), 0);
    (void)snprintf(command, sizeof command, "chmod -R u+rwx '%s' && rm -rf '%s'", dir, dir);
    return system(command); /* NOLINT(cert-env33-c,concurrency-mt-unsafe) */
}

static void make(const char *name, mode_t mode)
{
    const int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(fchmod(fd, mode), 0);
    assert_int_equal(close(fd), 0);
}

/* By name, and if it can be opened as an open file: both must say the same. */
static weir_status judged(const char *name, int flags, weir_error *err)
{
    const weir_status status = weir__file_judge_name(name, flags, err);
    const int fd = weir__file_open(AT_FDCWD, name, O_RDONLY, 0);
    if (fd >= 0) {
        assert_int_equal(weir__file_judge(fd, name, flags, NULL), status);
        assert_int_equal(close(fd), 0);
    }
    return status;
}

static void a_file_of_ones_own_is_fine(void **state)
{
    (void)state;
    make("plain", 0644);
    make("group", 0664);
    assert_int_equal(judged("plain", FILE_ONE_NAME, NULL), WEIR_OK);
    assert_int_equal(judged("group", FILE_ONE_NAME, NULL), WEIR_OK);
    assert_int_equal(judged("/etc/passwd", 0, NULL), WEIR_OK); /* root's */
    assert_int_equal(judged("nothing", 0, NULL), WEIR_OK);
    assert_int_equal(judged(".", FILE_DIRECTORY, NULL), WEIR_OK);
}

static void what_everybody_may_write_is_refused_unless_insecure(void **state)
{
    weir_error err;
    (void)state;
    make("open", 0646);
    assert_int_equal(judged("open", 0, &err), WEIR_EMISUSE);
    assert_non_null(strstr(err.message, "every user may write to \"open\""));
    assert_non_null(strstr(err.detail, "chmod o-w"));
    assert_non_null(strstr(err.detail, "--insecure"));
    assert_int_equal(judged("open", FILE_INSECURE, NULL), WEIR_OK);
    assert_int_equal(judged("/tmp", FILE_DIRECTORY, NULL), WEIR_EMISUSE);
}

static void C56_what_belongs_to_another_user_is_refused_unless_insecure(void **state)
{
    weir_error err;
    (void)state;
    if (geteuid() != 0) {
        /* Root's own is fine (above), and there may be no file of anybody else. */
        return;
    }
    make("theirs", 0644);
    make("ours", 0644);
    assert_int_equal(chmod(".", 0755), 0);
    assert_int_equal(chown("theirs", OTHER_UID, OTHER_UID), 0);
    assert_int_equal(judged("theirs", 0, NULL), WEIR_OK); /* root may */
    assert_int_equal(judged("theirs", FILE_ROOTS_OWN, NULL), WEIR_EMISUSE);
    assert_int_equal(symlink("ours", "their-link"), 0);
    assert_int_equal(lchown("their-link", OTHER_UID, OTHER_UID), 0);
    assert_int_equal(weir__file_judge_given("their-link", 0, NULL), WEIR_OK);
    /* Except where everybody may put a link. */
    assert_int_equal(chmod(".", 01777), 0);
    assert_int_equal(weir__file_judge_given("their-link", 0, &err), WEIR_EMISUSE);
    assert_non_null(strstr(err.message, "\"their-link\" is a symbolic link of user 54321"));
    assert_non_null(strstr(err.detail, "Use the path that it leads to"));
    assert_int_equal(weir__file_judge_given("their-link", FILE_INSECURE, NULL), WEIR_OK);
    assert_int_equal(weir__file_judge_given("./their-link", 0, NULL), WEIR_EMISUSE);
    assert_int_equal(lchown("their-link", 0, 0), 0);
    assert_int_equal(weir__file_judge_given("their-link", 0, NULL), WEIR_OK);
    assert_int_equal(lchown("their-link", OTHER_UID, OTHER_UID), 0);
    assert_int_equal(chmod(".", 0755), 0);

    assert_int_equal(seteuid(OTHER_UID + 1), 0);
    assert_int_equal(judged("theirs", 0, &err), WEIR_EMISUSE);
    assert_non_null(strstr(err.message, "belongs to user 54321, neither to you nor to root"));
    assert_non_null(strstr(err.detail, "chown"));
    assert_int_equal(judged("theirs", FILE_INSECURE, NULL), WEIR_OK);
    assert_int_equal(judged("ours", 0, NULL), WEIR_OK); /* root's */
    assert_int_equal(weir__file_judge_given("their-link", 0, NULL), WEIR_EMISUSE);
    assert_int_equal(weir__file_judge_given("their-link", FILE_INSECURE, NULL), WEIR_OK);
    assert_int_equal(seteuid(0), 0);
    assert_int_equal(seteuid(OTHER_UID), 0);
    assert_int_equal(judged("theirs", 0, NULL), WEIR_OK);
    assert_int_equal(seteuid(0), 0);
}

static void other_kinds_are_refused_and_never_waited_for(void **state)
{
    weir_error err;
    (void)state;
    make("file", 0644);
    assert_int_equal(mkfifo("pipe", 0600), 0);
    assert_int_equal(symlink("file", "link"), 0);
    assert_int_equal(judged("pipe", FILE_INSECURE, &err), WEIR_EINVAL);
    assert_non_null(strstr(err.message, "\"pipe\" is not a file"));
    assert_int_equal(judged("pipe", FILE_ANY_KIND, NULL), WEIR_OK);
    assert_int_equal(judged(".", 0, NULL), WEIR_EINVAL);
    assert_int_equal(judged("file", FILE_DIRECTORY, NULL), WEIR_EINVAL);
    assert_int_equal(judged("link", FILE_INSECURE, &err), WEIR_EMISUSE);
    assert_non_null(strstr(err.message, "\"link\" is a symbolic link"));
}

static void links_are_not_followed(void **state)
{
    weir_error err;
    (void)state;
    make("file", 0644);
    assert_int_equal(symlink("file", "link"), 0);
    assert_int_equal(symlink(".", "directory-link"), 0);
    assert_int_equal(symlink("nowhere", "dangling"), 0);

    errno = 0;
    assert_int_equal(weir__file_open(AT_FDCWD, "link", O_RDWR, 0), -1);
    assert_int_equal(weir__file_open_judge(errno, "link", 0, &err), WEIR_EMISUSE);
    assert_non_null(strstr(err.message, "\"link\" is a symbolic link"));
    assert_int_equal(weir__file_open(AT_FDCWD, "dangling", O_RDWR | O_CREAT, 0644), -1);
    assert_int_not_equal(access("nowhere", F_OK), 0);
    assert_int_equal(weir__file_open(AT_FDCWD, "directory-link", O_RDONLY | O_DIRECTORY, 0), -1);
    assert_int_equal(weir__file_open_judge(errno, "directory-link", FILE_DIRECTORY, &err),
                     WEIR_EMISUSE);
    assert_int_equal(weir__file_open(AT_FDCWD, "file", O_RDONLY | O_DIRECTORY, 0), -1);
    assert_int_equal(weir__file_open_judge(errno, "file", FILE_DIRECTORY, &err), WEIR_EINVAL);
    assert_non_null(strstr(err.message, "\"file\" is not a directory"));
    assert_int_equal(weir__file_open_judge(ENOSPC, "file", 0, &err), WEIR_OK);

    assert_int_equal(weir__file_judge_given("link", 0, NULL), WEIR_OK);
    assert_int_equal(weir__file_judge_given("nothing", 0, NULL), WEIR_OK);
    assert_int_equal(weir__file_judge_given("dangling", FILE_INSECURE, &err), WEIR_EMISUSE);
    assert_non_null(strstr(err.message, "\"dangling\" is a symbolic link to nothing"));
}

static void a_second_name_is_refused_where_it_matters(void **state)
{
    weir_error err;
    (void)state;
    make("first", 0644);
    assert_int_equal(link("first", "second"), 0);
    assert_int_equal(judged("first", 0, NULL), WEIR_OK);
    assert_int_equal(judged("second", FILE_ONE_NAME | FILE_INSECURE, &err), WEIR_EMISUSE);
    assert_non_null(strstr(err.message, "\"second\" has 2 names (hard links)"));
    assert_int_equal(unlink("first"), 0);
    assert_int_equal(judged("second", FILE_ONE_NAME, NULL), WEIR_OK);
}

static void a_directory_in_which_everybody_renames_is_refused(void **state)
{
    weir_error err;
    char here[512], path[600];
    (void)state;
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(mkdir("a", 0755), 0);
    assert_int_equal(mkdir("a/b", 0755), 0);
    (void)snprintf(path, sizeof path, "%s/a/b/weir.db", here);
    assert_int_equal(weir__file_judge_above(path, 0, NULL), WEIR_OK);
    assert_int_equal(chmod("a", 0777), 0); /* not the parent: the one above */
    assert_int_equal(weir__file_judge_above(path, 0, &err), WEIR_EMISUSE);
    assert_non_null(strstr(err.message, "every user may rename what is in"));
    assert_int_equal(weir__file_judge_above(path, FILE_INSECURE, NULL), WEIR_OK);
    assert_int_equal(chmod("a", 01777), 0);
    assert_int_equal(weir__file_judge_above(path, 0, NULL), WEIR_OK);
    assert_int_equal(weir__file_judge_above("/weir.db", 0, NULL), WEIR_OK);
}

static void what_is_made_is_like_the_database(void **state)
{
    struct stat st;
    (void)state;
    make("db", 0640);
    make("side", 0600);
    assert_int_equal(mkdir("locks", 0700), 0);
    if (geteuid() == 0) {
        assert_int_equal(chown("db", OTHER_UID, OTHER_UID), 0);
    }
    const int side = weir__file_open(AT_FDCWD, "side", O_RDWR, 0);
    const int locks = weir__file_open(AT_FDCWD, "locks", O_RDONLY | O_DIRECTORY, 0);
    weir__file_match(side, "db");
    weir__file_match(locks, "db");
    weir__file_match(locks, "nothing");
    assert_int_equal(fstat(side, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    assert_int_equal(st.st_uid, geteuid() == 0 ? OTHER_UID : geteuid());
    assert_int_equal(fstat(locks, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0750);
    assert_int_equal(close(side), 0);
    assert_int_equal(close(locks), 0);
}

static void standard_descriptors_are_left_alone(void **state)
{
    (void)state;
    make("file", 0644);
    const int kept = dup(STDIN_FILENO);
    assert_int_equal(close(STDIN_FILENO), 0);
    const int fd = weir__file_open(AT_FDCWD, "file", O_RDONLY, 0);
    assert_int_equal(dup2(kept, STDIN_FILENO), STDIN_FILENO);
    assert_true(fd > STDERR_FILENO);
    assert_int_equal(close(fd), 0);
    assert_int_equal(close(kept), 0);
}

#define FILE_TEST(name) cmocka_unit_test_setup_teardown(name, enter, leave)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILE_TEST(a_file_of_ones_own_is_fine),
        FILE_TEST(what_everybody_may_write_is_refused_unless_insecure),
        FILE_TEST(C56_what_belongs_to_another_user_is_refused_unless_insecure),
        FILE_TEST(other_kinds_are_refused_and_never_waited_for),
        FILE_TEST(links_are_not_followed),
        FILE_TEST(a_second_name_is_refused_where_it_matters),
        FILE_TEST(a_directory_in_which_everybody_renames_is_refused),
        FILE_TEST(what_is_made_is_like_the_database),
        FILE_TEST(standard_descriptors_are_left_alone),
    };
    return cmocka_run_group_tests_name("file", tests, NULL, NULL);
}
