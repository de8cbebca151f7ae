/* config.c - the store of a weir.yaml, which every command asks for.
 *
 * What is not known is an error: a key that is misspelt must not be a key that is ignored. But
 * lanes, reactions and tables are looked at by who uses them (config_reactions.c, config_tables.c):
 * a slip in a reaction must not keep anybody from reading the store.
 */
#include "cli/cli.h"
#include "cli/config_yaml.h"

void weir__config_take_store(config_file *f, const config_key *key, yaml_node_t *value, void *into)
{
    weir_str text;

    if (weir__config_text(f, key->name, value, "a URL such as sqlite:orders.db", &text)) {
        memcpy((char *)into + key->offset, &text.ptr, sizeof text.ptr);
    }
}

static void directory_leave(config_file *f, const config_key *key, yaml_node_t *value, void *into)
{
    (void)f;
    (void)key;
    (void)value;
    (void)into;
}

weir_status weir__cli_config_store(const char *path, char **store, weir_error *err)
{
    static const config_key keys[] = {
        { .name = "store", .take = weir__config_take_store },
        { .name = "memory_limit", .take = directory_leave },
        { .name = "lanes", .take = directory_leave },
        { .name = "reactions", .take = directory_leave },
        { .name = "tables", .take = directory_leave },
    };
    weir_arena arena = { 0 };
    config_file f = { .path = path, .arena = &arena };
    const char *found = NULL;
    weir_status status = weir__config_load(&f, err);

    *store = NULL;
    if (status == WEIR_ENOTFOUND) {
        status = WEIR_OK;
    }
    yaml_node_t *root = status == WEIR_OK ? weir__config_root(&f) : NULL;
    if (root != NULL && !f.broken) {
        weir__config_mapping(&f, root, "the file", keys, sizeof keys / sizeof keys[0], &found);
    }
    if (status == WEIR_OK && f.problems_count > 0) {
        status = weir__config_report(&f, err);
    }
    if (status == WEIR_OK && found != NULL) {
        *store = weir__strndup(found, strlen(found));
    }
    if (status == WEIR_OK && (f.full || (found != NULL && *store == NULL))) {
        weir__free(*store);
        *store = NULL;
        status = weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    weir__config_unload(&f);
    weir__buffer_free(&f.problems);
    weir__arena_free(&arena);
    return status;
}
