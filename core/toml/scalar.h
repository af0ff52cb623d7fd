/* SPDX-License-Identifier: Apache-2.0 */
/* One TOML value that is not a string: boolean, number, date or time. */
#ifndef CARTON_TOML_SCALAR_H
#define CARTON_TOML_SCALAR_H

#include <locale.h>

#include "toml/toml.h"

/*
 * Parses all `n` bytes of the NUL-terminated `text` into `ret`, whose line is kept. Overwrites
 * `text`; ret->str may point into it. `c_locale` is the "C" locale. NULL, or what is wrong.
 */
const char *toml_scalar_parse(char *text, size_t n, locale_t c_locale, struct toml_value *ret);

#endif
