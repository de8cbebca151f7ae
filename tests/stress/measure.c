/* measure.c - runs a program and writes down what it used.
 *
 *     measure REPORT COMMAND [ARG...]
 *
 * REPORT becomes one line of JSON: exit status (128 + signal when it was killed), wall, user and
 * system time in microseconds, and the most memory it had at any time, in kilobytes. The kernel's
 * figure for a child begins with what its parent had when it was forked, so this program is kept
 * small: a script's own size would be counted otherwise. Its own exit status is the command's.
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int64_t micros(struct timeval t)
{
    return (int64_t)t.tv_sec * 1000000 + t.tv_usec;
}

int main(int argc, char **argv)
{
    struct timespec start, end;
    struct rusage used;
    int status = 0;
    if (argc < 3) {
        (void)fprintf(stderr, "usage: measure REPORT COMMAND [ARG...]\n");
        return 2;
    }
    FILE *report = fopen(argv[1], "we");
    if (report == NULL) {
        perror(argv[1]);
        return 1;
    }
    (void)clock_gettime(CLOCK_MONOTONIC, &start);
    const pid_t child = fork();
    if (child == 0) {
        (void)execvp(argv[2], argv + 2);
        perror(argv[2]);
        _exit(127);
    }
    if (child < 0 || wait4(child, &status, 0, &used) != child) {
        perror("measure");
        return 1;
    }
    (void)clock_gettime(CLOCK_MONOTONIC, &end);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    (void)fprintf(
        report,
        "{\"status\":%d,\"wall_us\":%" PRId64 ",\"user_us\":%" PRId64 ",\"system_us\":%" PRId64
        ",\"memory_kb\":%ld}\n",
        code, (int64_t)(end.tv_sec - start.tv_sec) * 1000000 + (end.tv_nsec - start.tv_nsec) / 1000,
        micros(used.ru_utime), micros(used.ru_stime), used.ru_maxrss);
    return fclose(report) == 0 ? code : 1;
}
