/* operate.c - lists the targets that are blocked, with what happened to them, and unblocks them.
 *
 *     cc operate.c -o operate $(pkg-config --cflags --libs libweir) && ./operate sqlite:orders.db
 */
#include <stdio.h>
#include <weir.h>

int main(int argc, char **argv)
{
    const weir_options options = { WEIR_OPTIONS_INIT, .flags = WEIR_OPEN_EXISTING,
                                   .store_url = argc > 1 ? argv[1] : NULL };
    const weir_targets_options blocked = { WEIR_TARGETS_OPTIONS_INIT,
                                           .flags = WEIR_TARGETS_BLOCKED };
    const weir_target *target = NULL;
    weir_target_list *list = NULL;
    weir *w = NULL;
    int64_t changed = 0;
    weir_error err;

    int32_t status = weir_open(&options, &w, &err);
    status = status != WEIR_OK ? status : weir_targets_open(w, &blocked, &list, &err);
    while (status == WEIR_OK && (status = weir_targets_next(list, &target, &err)) == WEIR_OK &&
           target != NULL) {
        printf("%.*s: %.*s\n", (int)target->name.len, target->name.ptr, (int)target->error.len,
               target->error.ptr);
    }
    weir_targets_close(list);
    status = status != WEIR_OK ? status : weir_targets_unblock(w, &blocked, &changed, &err);
    if (status == WEIR_OK) {
        printf("%lld unblocked\n", (long long)changed);
    } else {
        fprintf(stderr, "operate: %s\n%s\n", err.message, err.detail);
    }
    weir_close(w);
    return status == WEIR_OK ? 0 : 1;
}
