// SPDX-License-Identifier: Apache-2.0
/* The properties of a message, as a Python object: they are kept, and encoded if all are of the usual kinds. Python
 * (shmbroker/properties.py) encodes all others, and reports those that are wrong. See native_message.h. */
#include "native_message.h"

#include <structmember.h>

/* In the order of AMQP's property flags: the first has the highest bit. */
enum {
  CONTENT_TYPE,
  CONTENT_ENCODING,
  HEADERS,
  DELIVERY_MODE,
  PRIORITY,
  CORRELATION_ID,
  REPLY_TO,
  EXPIRATION,
  MESSAGE_ID,
  TIMESTAMP,
  TYPE,
  USER_ID,
  APP_ID,
  CLUSTER_ID,
  COUNT
};
static const char *const TEXTS[COUNT] = {
    "content_type", "content_encoding", "headers",   "delivery_mode", "priority", "correlation_id", "reply_to",
    "expiration",   "message_id",       "timestamp", "type",          "user_id",  "app_id",         "cluster_id"};

typedef struct {
  PyObject_HEAD PyObject *values[COUNT]; /* NULL or None: not set */
} Properties;

PyTypeObject *sb_properties_type;
static PyObject *known[COUNT]; /* the names, interned */

bool sb_properties_names(void) {
  PyObject *slots = sb_intern(TEXTS, known, COUNT) ? PyTuple_New(COUNT) : NULL;
  bool good = slots != NULL;
  for (Py_ssize_t i = 0; good && i < COUNT; i++) {
    good = PyTuple_SetItem(slots, i, Py_NewRef(known[i])) == 0;
  }
  /* A dataclass makes no slots for fields that a base class has slots for. */
  good = good && PyObject_SetAttrString((PyObject *)sb_properties_type, "__slots__", slots) == 0;
  Py_XDECREF(slots);
  return good;
}

/* ---- construction ---- */

static bool take_keywords(PyObject **given, PyObject *keywords) {
  Py_ssize_t position = 0;
  PyObject *name, *value;
  while (PyDict_Next(keywords, &position, &name, &value)) {
    if (!PyUnicode_Check(name)) { /* a caller in C may pass any dict */
      PyErr_SetString(PyExc_TypeError, "keywords must be strings");
      return false;
    }
    int index = sb_index_of(name, known, COUNT);
    if (index < 0) {
      PyErr_Format(PyExc_TypeError, "BasicProperties() got an unexpected keyword argument '%U'", name);
      return false;
    }
    if (given[index] != NULL) {
      PyErr_Format(PyExc_TypeError, "BasicProperties() got multiple values for argument '%U'", name);
      return false;
    }
    given[index] = value;
  }
  return true;
}

static int properties_init(PyObject *object, PyObject *arguments, PyObject *keywords) {
  Properties *self = (Properties *)object;
  PyObject *given[COUNT] = {NULL};
  Py_ssize_t count = PyTuple_Size(arguments);
  if (count > COUNT) {
    PyErr_Format(PyExc_TypeError, "BasicProperties() takes at most %d arguments, %zd were given", COUNT, count);
    return -1;
  }
  for (Py_ssize_t i = 0; i < count; i++) {
    given[i] = PyTuple_GetItem(arguments, i);
  }
  if (keywords != NULL && !take_keywords(given, keywords)) {
    return -1;
  }
  for (int i = 0; i < COUNT; i++) {
    PyObject *before = self->values[i];
    if (given[i] == before) continue; /* most properties are not set, before and after */
    self->values[i] = Py_XNewRef(given[i]);
    Py_XDECREF(before);
  }
  return 0;
}

static int properties_traverse(PyObject *object, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(object));
  for (int i = 0; i < COUNT; i++) {
    Py_VISIT(((Properties *)object)->values[i]);
  }
  return 0;
}

static int properties_clear(PyObject *object) {
  for (int i = 0; i < COUNT; i++) {
    Py_CLEAR(((Properties *)object)->values[i]);
  }
  return 0;
}

static void properties_dealloc(PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  (void)properties_clear(object);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

/* ---- encoding ---- */

typedef struct {
  char *at, *end;
  sb_put_options *options;
} Encoder;

static bool append(Encoder *to, const void *bytes, size_t length) {
  bool fits = length <= (size_t)(to->end - to->at);
  if (fits) {
    memcpy(to->at, bytes, length);
    to->at += length;
  }
  return fits;
}

/* Appends the low `bytes` bytes of the number, the highest first. */
static bool append_number(Encoder *to, uint64_t number, unsigned bytes) {
  char encoded[8];
  for (unsigned i = 0; i < bytes; i++) {
    encoded[i] = (char)(unsigned char)(number >> 8 * (bytes - 1 - i));
  }
  return append(to, encoded, bytes);
}

/* The text in UTF-8. NULL: Python must encode it, since it is of a subclass, cannot be encoded, or there is no memory. */
static const char *utf8_of(PyObject *text, Py_ssize_t *length) {
  const char *found = PyUnicode_CheckExact(text) ? PyUnicode_AsUTF8AndSize(text, length) : NULL;
  if (found == NULL) PyErr_Clear();
  return found;
}

static bool encode_octet(Encoder *to, int index, PyObject *value) {
  int beyond = 0;
  long number = PyLong_CheckExact(value) ? PyLong_AsLongAndOverflow(value, &beyond) : -1;
  if (number < 0 || number > UINT8_MAX || (index == DELIVERY_MODE && number != 1 && number != 2)) {
    return false;
  }
  if (index == PRIORITY) to->options->priority = (uint8_t)number;
  return append_number(to, (uint64_t)number, 1);
}

#define MOST_DIGITS 12 /* of an expiration; Python says what is wrong with more */

/* Takes a time to live, as milliseconds in decimal digits. 0 ms is the shortest time, since 0 in the options means that
 * the message does not expire. */
static bool take_expiration(sb_put_options *options, const char *text, Py_ssize_t length) {
  long milliseconds = 0;
  if (length == 0 || length > MOST_DIGITS) {
    return false;
  }
  for (Py_ssize_t i = 0; i < length; i++) {
    if (text[i] < '0' || text[i] > '9') {
      return false;
    }
    milliseconds = milliseconds * 10 + (text[i] - '0');
  }
  options->ttl_ns = milliseconds > 0 ? (uint64_t)milliseconds * 1000000 : SB_TTL_NOW;
  return milliseconds <= LONGEST_EXPIRATION_MS;
}

static bool encode_text(Encoder *to, int index, PyObject *value) {
  Py_ssize_t length = 0;
  const char *text = utf8_of(value, &length);
  if (text == NULL || length > UINT8_MAX || (index == EXPIRATION && !take_expiration(to->options, text, length))) {
    return false;
  }
  return append_number(to, (uint64_t)length, 1) && append(to, text, (size_t)length);
}

/* ---- headers: a table of names and values of the usual kinds (shmbroker/_amqp/field_tables.py) ---- */

#define MOST_NAME 128

static bool encode_name(Encoder *to, PyObject *name) {
  Py_ssize_t length = 0;
  const char *text = utf8_of(name, &length);
  if (text == NULL || length > MOST_NAME || strcmp(text, "CC") == 0 || strcmp(text, "BCC") == 0) {
    return false; /* CC and BCC name further queues: Python routes the message */
  }
  return append_number(to, (uint64_t)length, 1) && append(to, text, (size_t)length);
}

static bool encode_counted(Encoder *to, char kind, const char *bytes, Py_ssize_t length) {
  return bytes != NULL && append(to, &kind, 1) && append_number(to, (uint64_t)length, 4) &&
         append(to, bytes, (size_t)length);
}

/* In the shortest signed form. Python encodes numbers for which there is a shorter unsigned one. */
static bool encode_integer(Encoder *to, PyObject *value) {
  int beyond = 0;
  long long number = PyLong_AsLongLongAndOverflow(value, &beyond);
  char kind = number >= INT8_MIN && number <= INT8_MAX     ? 'b'
              : number >= INT16_MIN && number <= INT16_MAX ? 's'
              : number >= INT32_MIN && number <= INT32_MAX ? 'I'
                                                           : 'l';
  bool is_unsigned = (number > INT16_MAX && number <= UINT16_MAX) || (number > INT32_MAX && number <= UINT32_MAX);
  return beyond == 0 && !is_unsigned && append(to, &kind, 1) &&
         append_number(to, (uint64_t)number,
                       kind == 'b'   ? 1
                       : kind == 's' ? 2
                       : kind == 'I' ? 4
                                     : 8);
}

static bool encode_double(Encoder *to, PyObject *value) {
  double number = PyFloat_AsDouble(value);
  uint64_t bits;
  memcpy(&bits, &number, sizeof bits);
  return append(to, "d", 1) && append_number(to, bits, 8);
}

static bool encode_value(Encoder *to, PyObject *value) {
  Py_ssize_t length = 0;
  if (PyUnicode_CheckExact(value)) {
    const char *text = utf8_of(value, &length);
    return encode_counted(to, 'S', text, length);
  }
  if (PyBool_Check(value)) {
    return append(to, value == Py_True ? "t\1" : "t\0", 2);
  }
  if (PyBytes_CheckExact(value)) {
    return encode_counted(to, 'x', PyBytes_AsString(value), PyBytes_Size(value));
  }
  return value == Py_None            ? append(to, "V", 1)
         : PyLong_CheckExact(value)  ? encode_integer(to, value)
         : PyFloat_CheckExact(value) ? encode_double(to, value)
                                     : false;
}

static bool encode_headers(Encoder *to, PyObject *headers) {
  Encoder length = *to;
  Py_ssize_t position = 0;
  PyObject *name, *value;
  if (!PyDict_CheckExact(headers) || !append_number(to, 0, 4)) {
    return false;
  }
  while (PyDict_Next(headers, &position, &name, &value)) {
    if (!encode_name(to, name) || !encode_value(to, value)) {
      return false;
    }
  }
  return append_number(&length, (uint64_t)(to->at - length.at - 4), 4);
}

bool sb_properties_encode(PyObject *object, char *buffer, sb_put_options *options) {
  /* A subclass of the application may compute its properties in another way: Python reads them. */
  if (PyType_GetSlot(Py_TYPE(object), Py_tp_base) != sb_properties_type) {
    return false;
  }
  const Properties *self = (const Properties *)object;
  Encoder to = {buffer + 2, buffer + PROPERTIES_BYTES, options}, flags_at = {buffer, buffer + 2, options};
  uint16_t flags = 0;
  for (int i = 0; i < COUNT; i++) {
    PyObject *value = self->values[i];
    if (value == NULL || value == Py_None) continue;
    bool good = i == TIMESTAMP || i == USER_ID        ? false
                : i == HEADERS                        ? encode_headers(&to, value)
                : i == DELIVERY_MODE || i == PRIORITY ? encode_octet(&to, i, value)
                                                      : encode_text(&to, i, value);
    if (!good) {
      return false;
    }
    flags |= (uint16_t)(1u << (15 - i));
  }
  options->properties = buffer;
  options->properties_length = (uint32_t)(to.at - buffer);
  return append_number(&flags_at, flags, 2);
}

bool sb_properties_have_headers(PyObject *object) {
  const PyObject *headers = ((const Properties *)object)->values[HEADERS];
  return headers != NULL && headers != Py_None;
}

bool sb_mode_is_transient(PyObject *object) {
  PyObject *mode = object != Py_None ? ((const Properties *)object)->values[DELIVERY_MODE] : NULL;
  return mode != NULL && mode != Py_None && PyLong_AsLong(mode) == 1;
}

/* ---- the type ---- */

#define MEMBER(name, index) {name, T_OBJECT, offsetof(Properties, values) + (index) * sizeof(PyObject *), 0, NULL}
static PyMemberDef properties_members[] = {
    MEMBER("content_type", CONTENT_TYPE),
    MEMBER("content_encoding", CONTENT_ENCODING),
    MEMBER("headers", HEADERS),
    MEMBER("delivery_mode", DELIVERY_MODE),
    MEMBER("priority", PRIORITY),
    MEMBER("correlation_id", CORRELATION_ID),
    MEMBER("reply_to", REPLY_TO),
    MEMBER("expiration", EXPIRATION),
    MEMBER("message_id", MESSAGE_ID),
    MEMBER("timestamp", TIMESTAMP),
    MEMBER("type", TYPE),
    MEMBER("user_id", USER_ID),
    MEMBER("app_id", APP_ID),
    MEMBER("cluster_id", CLUSTER_ID),
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot properties_slots[] = {
    {Py_tp_init, (void *)properties_init},
    {Py_tp_dealloc, (void *)properties_dealloc},
    {Py_tp_traverse, (void *)properties_traverse},
    {Py_tp_clear, (void *)properties_clear},
    {Py_tp_members, properties_members},
    {Py_tp_doc,
     (void *)"Properties(content_type=None, content_encoding=None, headers=None, delivery_mode=None, priority=None,"
             " correlation_id=None, reply_to=None, expiration=None, message_id=None, timestamp=None, type=None, "
             "user_id=None,"
             " app_id=None, cluster_id=None)\n--\n\n"
             "Keeps the properties of a message; the base of shmbroker.BasicProperties."},
    {0, NULL},
};
PyType_Spec sb_properties_spec = {"shmbroker._native_message.Properties", sizeof(Properties), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, properties_slots};
