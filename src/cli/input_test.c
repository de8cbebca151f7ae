/* input_test.c - lines out of a pipe: whatever the pieces they come in, in bounded memory, and
 * whether the next one would have to be waited for. */
#include "cli/cli.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static int pipe_in;

static cli_lines lines_of_pipe(size_t line_max)
{
    int fds[2];

    assert_int_equal(pipe(fds), 0);
    pipe_in = fds[1];
    return (cli_lines){ .fd = fds[0], .line_max = line_max };
}

static void feed(const char *text)
{
    assert_int_equal(write(pipe_in, text, strlen(text)), (ssize_t)strlen(text));
}

static void end(cli_lines *l)
{
    (void)close(l->fd);
    weir__cli_lines_free(l);
}

static void expect_line(cli_lines *l, const char *text)
{
    weir_str line = { 0 };
    weir_error err;
    bool more = false;

    assert_int_equal(weir__cli_lines_next(l, &line, &more, &err), WEIR_OK);
    assert_true(more);
    assert_int_equal(line.len, strlen(text));
    assert_memory_equal(line.ptr, text, line.len);
}

static void expect_end(cli_lines *l)
{
    weir_str line = { 0 };
    weir_error err;
    bool more = true;

    assert_int_equal(weir__cli_lines_next(l, &line, &more, &err), WEIR_OK);
    assert_false(more);
}

static void lines_are_numbered_and_the_last_one_needs_no_newline(void **state)
{
    (void)state;
    cli_lines l = lines_of_pipe(100);
    feed("one\n\nthree");
    (void)close(pipe_in);
    expect_line(&l, "one");
    expect_line(&l, "");
    assert_int_equal(l.number, 2);
    expect_line(&l, "three");
    assert_int_equal(l.number, 3);
    assert_int_equal(l.bytes_done, 10);
    expect_end(&l);
    end(&l);
}

static void a_line_is_waited_for_only_when_it_is_not_there(void **state)
{
    (void)state;
    cli_lines l = lines_of_pipe(100);
    assert_true(weir__cli_lines_wait(&l));
    feed("one\ntwo\nthr");
    assert_false(weir__cli_lines_wait(&l));
    expect_line(&l, "one");
    assert_false(weir__cli_lines_wait(&l)); /* it is in the buffer */
    expect_line(&l, "two");
    assert_true(weir__cli_lines_wait(&l)); /* half a line is no line */
    feed("ee\n");
    expect_line(&l, "three");
    feed("fou"); /* what can be read is half a line, too */
    assert_true(weir__cli_lines_wait(&l));
    feed("r\n");
    assert_false(weir__cli_lines_wait(&l));
    expect_line(&l, "four");
    (void)close(pipe_in);
    assert_false(weir__cli_lines_wait(&l)); /* the end is there */
    expect_end(&l);
    end(&l);
}

static void a_line_of_the_limit_is_given_and_a_longer_one_is_skipped(void **state)
{
    (void)state;
    cli_lines l = lines_of_pipe(5);
    weir_str line = { 0 };
    weir_error err;
    bool more = false;
    feed("12345\n123456\nafter\n");
    (void)close(pipe_in);
    expect_line(&l, "12345");
    assert_int_equal(weir__cli_lines_next(&l, &line, &more, &err), WEIR_EINVAL);
    assert_int_equal(l.number, 2);
    expect_line(&l, "after");
    assert_int_equal(l.number, 3);
    expect_end(&l);
    end(&l);
}

/* A line of 3 MB is skipped with the memory of a short one: the buffer does not grow to hold it. */
static void a_line_without_end_does_not_grow_the_buffer(void **state)
{
    (void)state;
    char path[] = "/tmp/weir-input-XXXXXX";
    const int fd = mkstemp(path);
    char block[1024];
    weir_str line = { 0 };
    weir_error err;
    bool more = false;

    assert_true(fd >= 0);
    (void)unlink(path);
    memset(block, 'x', sizeof block);
    for (int i = 0; i < 3000; i++) {
        assert_int_equal(write(fd, block, sizeof block), (ssize_t)sizeof block);
    }
    assert_int_equal(write(fd, "\nnext\n", 6), 6);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    cli_lines l = { .fd = fd, .line_max = 1000 };
    assert_int_equal(weir__cli_lines_next(&l, &line, &more, &err), WEIR_EINVAL);
    expect_line(&l, "next");
    assert_true(l.capacity <= 524288);
    expect_end(&l);
    end(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_numbered_and_the_last_one_needs_no_newline),
        cmocka_unit_test(a_line_is_waited_for_only_when_it_is_not_there),
        cmocka_unit_test(a_line_of_the_limit_is_given_and_a_longer_one_is_skipped),
        cmocka_unit_test(a_line_without_end_does_not_grow_the_buffer),
    };
    return cmocka_run_group_tests_name("input", tests, NULL, NULL);
}
