/* claims_test.c - the tests of the kit that need one claimer, or two. */
#include "kit.h"

int main(int argc, char **argv)
{
    const kit_case *const lists[] = { kit_claiming, kit_losing, kit_lasting,
                                      kit_naming,   kit_typing, NULL };
    const size_t counts[] = { kit_claiming_count, kit_losing_count, kit_lasting_count,
                              kit_naming_count, kit_typing_count };
    return kit_main(argc, argv, lists, counts);
}
