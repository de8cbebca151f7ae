/* child_kit.h - what the tests of programs as handlers share: a keeper, a directory, short ways to
 * run and to ask, and waiting for conditions. A wait that is not fulfilled in WAIT_US fails.
 */
#ifndef TESTS_ENGINE_CHILD_KIT_H
#define TESTS_ENGINE_CHILD_KIT_H

#include "base/clock.h"
#include "base/str.h"
#include "engine/child/child.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

#include <cmocka.h>

enum { SECOND_US = 1000 * 1000, WAIT_US = 60 * SECOND_US };

extern child_keeper *keeper;
extern child_result result; /* of the last kit_run or kit_ask */

/* Group fixtures: a directory of its own to be in, SIGPIPE at its default, a keeper. */
int kit_set_up(void **state);
int kit_tear_down(void **state);

child_call kit_call(const char *line, int64_t patience_us);
/* Runs with a minute of patience; returns the kind, 0 for a failure of ours. */
int32_t kit_run(const char *command);
int32_t kit_ask(child *c, const char *line);

bool kit_contains(weir_str text, const char *part);
/* Result is `kind`, and its `why` has `part`. */
void kit_expect(int32_t kind, const char *part);

/* The process in that file of the directory, once there is one; the file is removed. */
pid_t kit_pid(const char *file);
void kit_await_file(const char *file);
bool kit_is_gone(pid_t pid); /* not even a zombie */
void kit_await_gone(pid_t pid);
void kit_await_end(pid_t pid); /* a zombie will do: its parent may be anybody */
int64_t kit_now_us(void);
/* Leaves an empty file of that name. */
void kit_touch(const char *file);

#endif
