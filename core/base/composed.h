/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names that look the same: macOS decomposes the characters of names (NFD), others compose (NFC).
 */
#ifndef CARTON_BASE_COMPOSED_H
#define CARTON_BASE_COMPOSED_H

#include <stdbool.h>

/*
 * Do two names in UTF-8 seem to differ only in how their characters are composed? For messages: of
 * a letter with marks, which letter and marks these are is compared for Hangul only, since there is
 * no table of all others here. False for equal names.
 */
bool composed_alike(const char *a, const char *b);

#endif
