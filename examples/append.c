/* append.c - appends to a stream, meets a conflict, goes on from what is there, and reads it back.
 *
 *     cc append.c -o append $(pkg-config --cflags --libs libweir) && ./append sqlite:orders.db
 */
#include <stdio.h>
#include <weir.h>

static int print_event(void *ctx, const weir_event *e)
{
    (void)ctx;
    return printf("%lld %.*s %.*s\n", (long long)e->version, (int)e->name.len, e->name.ptr,
                  (int)e->data.len, e->data.ptr) < 0;
}

int main(int argc, char **argv)
{
    const weir_options options = { WEIR_OPTIONS_INIT, .store_url = argc > 1 ? argv[1] : NULL };
    const weir_str order = WEIR_STR("order-1"), paid = WEIR_STR("OrderPaid"), no_data = { NULL, 0 };
    const weir_read_options all = { WEIR_READ_OPTIONS_INIT, .stream = order };
    weir *w = NULL;
    weir_error err;

    int32_t status = weir_open(&options, &w, &err);
    if (status == WEIR_OK) {
        status = weir_append_one(w, order, WEIR_EXPECT_NONE, 0, WEIR_STR("OrderPlaced"), no_data,
                                 NULL, &err);
    }
    if (status == WEIR_OK) { /* we still believe that there is no such order: that is a conflict */
        status = weir_append_one(w, order, WEIR_EXPECT_NONE, 0, paid, no_data, NULL, &err);
        if (status == WEIR_ECONFLICT) {
            printf("conflict on %s: it is at version %lld\n", err.stream, (long long)err.actual);
            status =
                weir_append_one(w, order, WEIR_EXPECT_EXACT, err.actual, paid, no_data, NULL, &err);
        }
    }
    status = status != WEIR_OK ? status : weir_read(w, &all, print_event, NULL, &err);
    if (status != WEIR_OK) {
        fprintf(stderr, "append: %s\n", err.message);
    }
    weir_close(w);
    return status == WEIR_OK ? 0 : 1;
}
