/* child_kit.c - see child_kit.h. */
#include "child_kit.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

child_keeper *keeper;
child_result result;

static char directory[] = "/tmp/weir-child-XXXXXX";

int64_t kit_now_us(void)
{
    return weir__clock_mono(weir__clock_machine());
}

int kit_set_up(void **state)
{
    (void)state;
    (void)signal(SIGPIPE, SIG_DFL); /* a library may not rely on its being ignored */
    if (mkdtemp(directory) == NULL || chdir(directory) != 0) {
        return -1;
    }
    return weir__child_keeper_open(&keeper, NULL) == WEIR_OK ? 0 : -1;
}

int kit_tear_down(void **state)
{
    char command[64];

    (void)state;
    weir__child_result_free(&result);
    weir__child_keeper_close(keeper);
    (void)snprintf(command, sizeof command, "rm -rf %s", directory);
    return system(command);
}

child_call kit_call(const char *line, int64_t patience_us)
{
    return (child_call){ .line = weir__str(line), .deadline_mono_us = kit_now_us() + patience_us };
}

int32_t kit_run(const char *command)
{
    const child_call call = kit_call("{\"event\":1}", WAIT_US);
    weir_error err;

    if (weir__child_run(keeper, command, &call, &result, &err) != WEIR_OK) {
        print_message("%s\n", err.message);
        return 0;
    }
    return result.kind;
}

int32_t kit_ask(child *c, const char *line)
{
    const child_call call = kit_call(line, WAIT_US);
    weir_error err;

    if (weir__child_ask(c, &call, &result, &err) != WEIR_OK) {
        print_message("%s\n", err.message);
        return 0;
    }
    return result.kind;
}

bool kit_contains(weir_str text, const char *part)
{
    return text.len > 0 && memmem(text.ptr, text.len, part, strlen(part)) != NULL;
}

void kit_expect(int32_t kind, const char *part)
{
    if (result.kind != kind || !kit_contains(result.why, part)) {
        fail_msg("kind %d, expected %d; \"%.*s\", expected \"%s\"", result.kind, kind,
                 (int)result.error.len, result.error.ptr == NULL ? "" : result.error.ptr, part);
    }
    assert_memory_equal(result.why.ptr, result.error.ptr, result.why.len);
}

static void pause_shortly(int64_t until_us, const char *what)
{
    if (kit_now_us() >= until_us) {
        fail_msg("waited in vain for %s", what);
    }
    weir__clock_pause(2000);
}

void kit_await_file(const char *file)
{
    const int64_t until_us = kit_now_us() + WAIT_US;

    while (access(file, F_OK) != 0) {
        pause_shortly(until_us, file);
    }
}

pid_t kit_pid(const char *file)
{
    const int64_t until_us = kit_now_us() + WAIT_US;
    int pid = 0;
    char newline = 0;

    while (newline != '\n') {
        FILE *in = fopen(file, "r");
        if (in == NULL || fscanf(in, "%d%c", &pid, &newline) != 2) {
            newline = 0;
            pause_shortly(until_us, file);
        }
        if (in != NULL) {
            (void)fclose(in);
        }
    }
    (void)unlink(file);
    assert_true(pid > 1);
    return pid;
}

bool kit_is_gone(pid_t pid)
{
    return kill(pid, 0) != 0 && errno == ESRCH;
}

void kit_await_gone(pid_t pid)
{
    const int64_t until_us = kit_now_us() + WAIT_US;

    while (!kit_is_gone(pid)) {
        pause_shortly(until_us, "a process to be waited for");
    }
}

/* Orphans may stay zombies until the machine's first process gets round to them. */
static bool is_zombie(pid_t pid)
{
    char path[64], state = 0;

    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *in = fopen(path, "r");
    if (in != NULL) {
        if (fscanf(in, "%*d (%*[^)]) %c", &state) != 1) {
            state = 0;
        }
        (void)fclose(in);
    }
    return state == 'Z';
}

void kit_await_end(pid_t pid)
{
    const int64_t until_us = kit_now_us() + WAIT_US;

    while (!kit_is_gone(pid) && !is_zombie(pid)) {
        pause_shortly(until_us, "the end of a process");
    }
}

void kit_touch(const char *file)
{
    FILE *out = fopen(file, "w");

    assert_non_null(out);
    assert_int_equal(fclose(out), 0);
}
