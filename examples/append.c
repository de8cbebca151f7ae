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
    const weir_str order = { "order-1", 7 }, placed = { "OrderPlaced", 11 };
    weir_new_event event = { WEIR_NEW_EVENT_INIT, .stream = order, .name = placed };
    weir_expectation belief = { WEIR_EXPECTATION_INIT, WEIR_EXPECT_NONE, .stream = order };
    const weir_new_event *const events[] = { &event };
    const weir_expectation *const beliefs[] = { &belief };
    const weir_append_request request = { WEIR_APPEND_REQUEST_INIT, .events = events,
                                          .events_count = 1, .expectations = beliefs,
                                          .expectations_count = 1 };
    const weir_read_options all = { WEIR_READ_OPTIONS_INIT, .stream = order };
    weir *w = NULL;
    weir_error err;

    int32_t status = weir_open(&w, &options, &err);
    status = status != WEIR_OK ? status : weir_append(w, &request, NULL, &err);
    if (status == WEIR_OK) {
        event.name = (weir_str){ "OrderPaid", 9 }; /* still believing that there is no such order */
        status = weir_append(w, &request, NULL, &err);
        if (status == WEIR_ECONFLICT) {
            printf("conflict on %s: it is at version %lld\n", err.stream, (long long)err.actual);
            belief.expect = WEIR_EXPECT_EXACT;
            belief.version = err.actual;
            status = weir_append(w, &request, NULL, &err);
        }
    }
    status = status != WEIR_OK ? status : weir_read(w, &all, print_event, NULL, &err);
    if (status != WEIR_OK) {
        fprintf(stderr, "append: %s\n", err.message);
    }
    weir_close(w);
    return status == WEIR_OK ? 0 : 1;
}
