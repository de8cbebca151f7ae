/* bouncer.c - see bouncer.h. */
#include "bouncer.h"

#include <errno.h>
#include <pwd.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WAIT_TRIES = 500, WAIT_US = 10000 };

static void must(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "bouncer: %s: %s\n", what, strerror(errno));
        exit(2);
    }
}

static void configure(const bouncer *b, const char *mode, int size)
{
    char path[128];
    const char *server = getenv("WEIR_TEST_PG_DIR");
    must(server != NULL, "WEIR_TEST_PG_DIR is not set");
    snprintf(path, sizeof path, "%s/config", b->directory);
    FILE *f = fopen(path, "we");
    must(f != NULL, "no configuration");
    fprintf(f,
            "[databases]\n"
            "* = host=%s user=postgres\n"
            "[pgbouncer]\n"
            "listen_addr =\n"
            "listen_port = 5432\n"
            "unix_socket_dir = %s\n"
            "unix_socket_mode = 0777\n"
            "auth_type = any\n"
            "pool_mode = %s\n"
            "default_pool_size = %d\n"
            "max_client_conn = 200\n"
            "server_reset_query =\n"
            "logfile = %s/log\n",
            server, b->directory, mode, size, b->directory);
    must(fclose(f) == 0, "no configuration");
}

static void run(const bouncer *b, pid_t parent)
{
    char config[128];
    const char *user = getenv("WEIR_TEST_PG_USER");
    snprintf(config, sizeof config, "%s/config", b->directory);
    if (geteuid() == 0) {
        const struct passwd *who = getpwnam(user == NULL ? "postgres" : user);
        must(who != NULL && setgid(who->pw_gid) == 0 && setuid(who->pw_uid) == 0, "no user");
    }
    /* After the change of user, which undoes it. */
    must(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0, "prctl");
    if (getppid() != parent) {
        _exit(2);
    }
    execlp("pgbouncer", "pgbouncer", "-q", config, (char *)NULL);
    execl("/usr/sbin/pgbouncer", "pgbouncer", "-q", config, (char *)NULL);
    must(false, "pgbouncer is not installed (Debian: pgbouncer)");
}

static bool answers(const bouncer *b)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    snprintf(address.sun_path, sizeof address.sun_path, "%s/.s.PGSQL.5432", b->directory);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool yes = fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) == 0;
    close(fd);
    return yes;
}

bouncer bouncer_start(const char *mode, int size)
{
    bouncer b = { .directory = "/tmp/weir-bouncer.XXXXXX" };
    const pid_t parent = getpid();
    must(mkdtemp(b.directory) != NULL && chmod(b.directory, 0777) == 0, "no directory");
    configure(&b, mode, size);
    b.process = fork();
    must(b.process >= 0, "no process");
    if (b.process == 0) {
        run(&b, parent);
    }
    for (int i = 0; !answers(&b); i++) {
        must(i < WAIT_TRIES && waitpid(b.process, NULL, WNOHANG) == 0, "pgbouncer did not start");
        usleep(WAIT_US);
    }
    return b;
}

void bouncer_stop(bouncer *b)
{
    static const char *const files[] = { "config", "log", ".s.PGSQL.5432" };
    kill(b->process, SIGKILL);
    waitpid(b->process, NULL, 0);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", b->directory, files[i]);
        unlink(path);
    }
    rmdir(b->directory);
}
