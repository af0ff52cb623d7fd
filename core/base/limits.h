/* SPDX-License-Identifier: Apache-2.0 */
/* All limits on inputs. A test exceeds each of them by one. */
#ifndef CARTON_BASE_LIMITS_H
#define CARTON_BASE_LIMITS_H

#define KIB (1024ULL)
#define MIB (1024ULL * KIB)
#define GIB (1024ULL * MIB)

/* Names: what Linux can hold (NAME_MAX, PATH_MAX without its NUL). */
#define MAX_COMPONENT 255
#define MAX_PATH_LEN 4095

/* A carton: entries of the container or lines of MANIFEST, and their total text. */
#define MAX_ENTRIES 2000000
#define MAX_CENTRAL_DIRECTORY (512 * MIB)
#define MAX_MANIFEST (256 * MIB)
#define MAX_LINKS_FILE (64 * MIB)
#define MAX_CARTON_TOML (16 * MIB)
#define MAX_META_TABLES 100000	     /* of each kind: inputs, outputs, tests, examples */
#define MAX_META_OPTIONS 100000	     /* values of runner.opts that are kept */
#define MAX_META_OPTION_TABLES 10000 /* tables and arrays among them */
#define MAX_NODES 8000000	     /* files and the directories above them */

/* Memory: the least default, and how much a carton may take by the size of its file. */
#define MIN_MEMORY (16 * MIB)
#define MEMORY_START (40 * MIB)
#define MEMORY_EXPANSION 64
#define META_EXPANSION 16	  /* of carton.toml, by its size */
#define LINKS_EXPANSION 8	  /* of LINKS */
#define BUDGET_RESERVE (16 * MIB) /* less is left: fetches use small buffers, and few connections */
#define MALLOC_SIZE 16		  /* bytes that malloc() adds to a block, at most */

/* Problems of one kind that are logged; further ones are only counted. */
#define MAX_REPORTED 20

/* Patterns of what a directory has that is not packed. */
#define MAX_PATTERNS 64

/* A symlink's target, and how many links a path may pass through. */
#define MAX_SYMLINK_HOPS 40

/* One file, and what a zstd frame may ask for as its window (2^27 = 128 MiB). */
#define MAX_FILE_SIZE (1ULL << 50)
#define MAX_ZSTD_WINDOW_LOG 27

/* Objects: kept in memory up to a size each, and shares of the budget; in files, by open files. */
#define MAX_MEMORY_OBJECT (4 * MIB)
#define MAX_SMALL_STORED (128 * KIB) /* a larger Stored one is read in place */
#define KEPT_SHARE 8   /* 1/8 of the budget, or one object; what has no room goes to files */
#define IDLE_SHARE 256 /* likewise, of those that are not open: the kernel has their pages */
#define MAX_OBJECT_FILES 256
#define BULK_OBJECT (8 * MIB)	/* larger ones do not hold up smaller ones */
#define QUICK_OBJECT (64 * KIB) /* with its headers: verified by the thread that asks for it */

/* The chunk index: bytes of a chunk. A read of one byte verifies all of its chunk. */
#define MIN_CHUNK (128 * KIB)
#define MAX_CHUNK (16 * MIB)

/* LINKS, and what comes over a network: tries without progress, and bytes fetched ahead of use. */
#define MAX_LINK_URLS 1000000
#define MAX_HASH_URLS 256 /* URLs of one hash */
#define MAX_FETCHED \
	(1024 * GIB) /* bytes of one file whose size the server announces; see max_size */
#define MAX_FETCHED_UNSAID (64 * GIB) /* the same, where the server announces no size */
#define MAX_FETCH_ATTEMPTS 5
#define MAX_EXTRA_CONNECTIONS 64      /* of all fetches together, besides one for each */
#define MIN_FETCH_PROGRESS (64 * KIB) /* an attempt that got so many bytes is not counted */
#define MAX_SNAPSHOT (256 * MIB)      /* bytes of a remote carton that opening it reads */

/* Threads of one lane whose jobs wait for something else: views of what a server has. */
#define MAX_BLOCKED 256

/* TOML. */
#define TOML_MAX_DEPTH 64	       /* nested arrays and inline tables */
#define TOML_MAX_KEY_PARTS 64	       /* parts of a path, header and dotted key together */
#define TOML_MAX_KEY 4096	       /* bytes of one key part */
#define TOML_MAX_KEYS 1000000	       /* keys of one document that are remembered at once */
#define TOML_MAX_KEY_BYTES (256 * MIB) /* bytes of these keys */
#define TOML_MAX_STRING (64 * MIB)     /* bytes of one string */
#define TOML_MAX_NUMBER 1024	       /* bytes of one number or date */

/* JSON. */
#define JSON_MAX_DEPTH 64 /* nested arrays and objects */

/* Tensors: of one index.toml or one safetensors header, and of each its name and dimensions. */
#define MAX_TENSORS 1000000
#define MAX_TENSOR_NAME (64 * KIB)
#define MAX_TENSOR_RANK 64
#define MAX_TENSOR_INNER 1000000 /* inner names of all nested tensors together */
#define MAX_INDEX_TOML (256 * MIB)

/* Safetensors: the header (a rule of the format), and metadata and unknown keys in it. */
#define MAX_SAFETENSORS_HEADER 100000000
#define MAX_SAFETENSORS_KEYS 1000000
#define MAX_SAFETENSORS_DIMS 8000000 /* dimensions of all tensors together */

/* Generated views: all text in them together, and the largest <U array of a string tensor. */
#define MAX_VIEW_MEMORY (512 * MIB)
#define MAX_STRING_NPY (256 * MIB)

/* Triton: the JSON of one request or response, and the whole body (it accepts less than 2 GiB). */
#define MAX_TRITON_JSON (64 * MIB)
#define MAX_TRITON_BODY (2 * GIB - 1)

/* Cache: the ETag and URL of a partial download; the names of objects; which ones have seals. */
#define MAX_CACHE_VALIDATOR 16384
#define MAX_CACHE_NAME 255	  /* bytes of a path, and of a source */
#define MAX_CACHE_NAMES (4 * MIB) /* of a file of names, of which there are two */
#define MIN_SEALED (1 * MIB)	  /* hashed in as much time as a seal costs */
#define MAX_SEALED (1ULL << 41)

/* A repository of a hub: its files, what is listed of them, and those that have no sha256. */
#define MAX_LISTED 100000
#define MAX_LISTING_PAGE (16 * MIB) /* bytes of one answer */
#define MAX_LISTING_PAGES 200
#define MAX_LISTED_SMALL (16 * MIB)	  /* bytes of a file without a sha256 */
#define MAX_LISTED_SMALL_ALL (4096 * MIB) /* bytes of all these files */
#define MAX_LAYERS 1000			  /* layers of an artifact that are archives */
#define MAX_UNPACKED_RATIO 1100		  /* gzip cannot pass 1032; see MAX_UNPACKED_START */
#define MAX_UNPACKED_START (64 * MIB)	  /* bytes that the smallest layer may unpack to */
#define MAX_OTHERS 8			  /* other repositories that may have the same files */
#define MAX_ATTACHED (1024 * MIB)	  /* bytes of all signatures of an artifact, with lists */
#define ATTACHED_COST (32 * KIB)	  /* an answer counts as so many of these bytes at least */
#define ATTACHED_TIMEOUTS 10		  /* the search for signatures ends after so many */

/* A signature: bytes, also of the base64 in it; its certificates; and paths that it leaves out. */
#define MAX_SIGNATURE (64 * MIB)
#define SIGNATURE_EXPANSION 4 /* memory for reading it, by its size */
#define MAX_CERTIFICATES 8
#define MAX_CERTIFICATE (64 * KIB)
#define MAX_IGNORED 1000
#define MAX_KEY_FILE (1 * MIB) /* PEM */
#define MAX_TRUSTED 64	       /* files with keys or certificates, each */

/* Blobs that a push sends to a registry at once. */
#define MAX_PUSH_THREADS 32

/* HTTP: bytes of a URL, of the headers of a response, of the buffer of a stream. */
#define HTTP_MAX_URL 8192  /* bytes of a URL */
#define HTTP_MAX_NEXT 1024 /* of the one in a Link header */
#define HTTP_MAX_REDIRECTS 5
#define HTTP_MAX_HEADERS 256 /* header lines of one response, 1xx and trailers included */
#define HTTP_MAX_HEADER_BYTES (64 * KIB)  /* and their total text */
#define HTTP_MAX_REDIRECT_BODY (16 * KIB) /* read to keep a connection; more: it is closed */
#define HTTP_MAX_KEPT_BODY (32 * KIB)	  /* of a token server, or a refusal of an object store */
#define HTTP_MAX_TOKENS 32
#define HTTP_STREAM_BUFFER (1 * MIB)  /* decoded bytes waiting for their reader, */
#define HTTP_SMALL_BUFFER (128 * KIB) /* and where memory is short */
/*
 * A coded body may decode to so many times the bytes that came, and some more for a start. deflate
 * cannot pass 1032, zstd 32768 (a block of 128 KiB in 4 bytes); brotli can be without end.
 */
#define HTTP_MAX_EXPANSION 33000
#define HTTP_EXPANSION_START (64 * MIB)
#define HTTP_MAX_RETRY_AFTER 86400	/* seconds; more is cut to it */
#define HTTP_MAX_HEADER_FILE (64 * KIB) /* the user's header file */
#define HTTP_MAX_FILE_HEADERS 64	/* its lines */

#endif
