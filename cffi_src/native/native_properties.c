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
_Static_assert(COUNT * (1 + UINT8_MAX) + 2 <= PROPERTIES_BYTES, "room for the longest values");

typedef struct {
  PyObject_HEAD PyObject *values[COUNT]; /* NULL or None: not set */
} Properties;

PyTypeObject *sb_properties_type;
static PyObject *known[COUNT]; /* the names, interned */

bool sb_properties_names(void) {
  PyObject *slots = PyTuple_New(COUNT);
  bool good = slots != NULL;
  for (Py_ssize_t i = 0; good && i < COUNT; i++) {
    known[i] = PyUnicode_InternFromString(TEXTS[i]);
    good = known[i] != NULL && PyTuple_SetItem(slots, i, Py_NewRef(known[i])) == 0;
  }
  /* A dataclass makes no slots for fields that a base class has slots for. */
  good = good && PyObject_SetAttrString((PyObject *)sb_properties_type, "__slots__", slots) == 0;
  Py_XDECREF(slots);
  return good;
}

/* ---- construction ---- */

static int index_of(PyObject *name) {
  for (int i = 0; i < COUNT; i++) {
    if (name == known[i]) return i;
  }
  for (int i = 0; i < COUNT; i++) {
    if (PyUnicode_Compare(name, known[i]) == 0) return i;
  }
  return -1;
}

static bool take_keywords(PyObject **given, PyObject *keywords) {
  Py_ssize_t position = 0;
  PyObject *name, *value;
  while (PyDict_Next(keywords, &position, &name, &value)) {
    int index = index_of(name);
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
  char *at;
  sb_put_options *options;
} Encoder;

static bool encode_octet(Encoder *to, int index, PyObject *value) {
  int beyond = 0;
  long number = PyLong_CheckExact(value) ? PyLong_AsLongAndOverflow(value, &beyond) : -1;
  if (number < 0 || number > UINT8_MAX || (index == DELIVERY_MODE && number != 1 && number != 2)) {
    return false;
  }
  if (index == PRIORITY) to->options->priority = (uint8_t)number;
  *to->at++ = (char)(unsigned char)number;
  return true;
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
  options->ttl_ns = milliseconds > 0 ? (uint64_t)milliseconds * 1000000 : 1;
  return milliseconds <= LONGEST_EXPIRATION_MS;
}

static bool encode_text(Encoder *to, int index, PyObject *value) {
  Py_ssize_t length = 0;
  const char *text = PyUnicode_CheckExact(value) ? PyUnicode_AsUTF8AndSize(value, &length) : NULL;
  if (text == NULL || length > UINT8_MAX) {
    PyErr_Clear(); /* it cannot be written in UTF-8, or there is no memory */
    return false;
  }
  if (index == EXPIRATION && !take_expiration(to->options, text, length)) {
    return false;
  }
  *to->at++ = (char)(unsigned char)length;
  memcpy(to->at, text, (size_t)length);
  to->at += length;
  return true;
}

bool sb_properties_encode(PyObject *object, char *buffer, sb_put_options *options) {
  /* A subclass of the application may compute its properties in another way: Python reads them. */
  if (PyType_GetSlot(Py_TYPE(object), Py_tp_base) != sb_properties_type) {
    return false;
  }
  const Properties *self = (const Properties *)object;
  Encoder to = {buffer + 2, options};
  uint16_t flags = 0;
  for (int i = 0; i < COUNT; i++) {
    PyObject *value = self->values[i];
    if (value == NULL || value == Py_None) continue;
    bool good = i == HEADERS || i == TIMESTAMP || i == USER_ID ? false
                : i == DELIVERY_MODE || i == PRIORITY          ? encode_octet(&to, i, value)
                                                               : encode_text(&to, i, value);
    if (!good) {
      return false;
    }
    flags |= (uint16_t)(1u << (15 - i));
  }
  buffer[0] = (char)(unsigned char)(flags >> 8);
  buffer[1] = (char)(unsigned char)(flags & 0xff);
  options->properties = buffer;
  options->properties_length = (uint32_t)(to.at - buffer);
  return true;
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
