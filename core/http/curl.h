/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libcurl, loaded when http_load_curl() is first called. The functions in use have the names of the
 * library, so calls look like any other. Private to this folder.
 */
#ifndef CARTON_HTTP_CURL_H
#define CARTON_HTTP_CURL_H

#define CURL_DISABLE_TYPECHECK /* its macros would hide the names below */
#include <curl/curl.h>

#if LIBCURL_VERSION_NUM < 0x075700
#error "libcurl 7.87 or newer is needed"
#endif

/* Before any other function of libcurl is called. 0, or -ELIBACC, logged. Any thread. */
int http_load_curl(void);

#undef curl_easy_setopt
#undef curl_easy_getinfo
#undef curl_multi_setopt

#define CURL_FUNCTIONS(X)           \
	X(curl_easy_cleanup)        \
	X(curl_easy_getinfo)        \
	X(curl_easy_init)           \
	X(curl_easy_pause)          \
	X(curl_easy_setopt)         \
	X(curl_easy_strerror)       \
	X(curl_free)                \
	X(curl_getdate)             \
	X(curl_global_cleanup)      \
	X(curl_global_init)         \
	X(curl_multi_add_handle)    \
	X(curl_multi_cleanup)       \
	X(curl_multi_info_read)     \
	X(curl_multi_init)          \
	X(curl_multi_perform)       \
	X(curl_multi_poll)          \
	X(curl_multi_remove_handle) \
	X(curl_multi_setopt)        \
	X(curl_multi_wakeup)        \
	X(curl_slist_append)        \
	X(curl_slist_free_all)      \
	X(curl_url)                 \
	X(curl_url_cleanup)         \
	X(curl_url_get)             \
	X(curl_url_set)             \
	X(curl_version_info)

#define CURL_DECLARE(name) extern typeof(name) *lazy_##name;
CURL_FUNCTIONS(CURL_DECLARE)

#define curl_easy_cleanup lazy_curl_easy_cleanup
#define curl_easy_getinfo lazy_curl_easy_getinfo
#define curl_easy_init lazy_curl_easy_init
#define curl_easy_pause lazy_curl_easy_pause
#define curl_easy_setopt lazy_curl_easy_setopt
#define curl_easy_strerror lazy_curl_easy_strerror
#define curl_free lazy_curl_free
#define curl_getdate lazy_curl_getdate
#define curl_global_cleanup lazy_curl_global_cleanup
#define curl_global_init lazy_curl_global_init
#define curl_multi_add_handle lazy_curl_multi_add_handle
#define curl_multi_cleanup lazy_curl_multi_cleanup
#define curl_multi_info_read lazy_curl_multi_info_read
#define curl_multi_init lazy_curl_multi_init
#define curl_multi_perform lazy_curl_multi_perform
#define curl_multi_poll lazy_curl_multi_poll
#define curl_multi_remove_handle lazy_curl_multi_remove_handle
#define curl_multi_setopt lazy_curl_multi_setopt
#define curl_multi_wakeup lazy_curl_multi_wakeup
#define curl_slist_append lazy_curl_slist_append
#define curl_slist_free_all lazy_curl_slist_free_all
#define curl_url lazy_curl_url
#define curl_url_cleanup lazy_curl_url_cleanup
#define curl_url_get lazy_curl_url_get
#define curl_url_set lazy_curl_url_set
#define curl_version_info lazy_curl_version_info

#endif
