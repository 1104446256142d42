// SPDX-License-Identifier: Apache-2.0
/* Publishing: finds the queues of an exchange and a routing key among the routes that this process knows already. See
 * native_message.h.
 *
 * `Publisher` keeps the routes to one queue or several. Python does everything else (shmbroker/_topology/publisher.py):
 * an unknown route, a route to no queue or to very many, a publish that has to wait. Routes are valid for one
 * version of the topology; each publish compares that version with the current one. A route is found by exchange and
 * routing key alone. So while a binding may look at headers, Python publishes the messages that have headers. */
#include "native_message.h"

#include <structmember.h>

#define SHORT_BODY 131072  /* bytes; to copy more takes tens of microseconds: Python publishes it without the GIL */
#define SHORT_COMMIT 16384 /* replaces SHORT_BODY if the route has several queues */

/* ---- Route: queues, and the options (exchange, key) of the messages for them ---- */

typedef struct {
  PyObject_HEAD sb_queue **queues;
  const sb_put_options *options;
  PyObject *owner; /* keeps queues and options */
  uint32_t count;
} Route;

static PyTypeObject *route_type;
PyTypeObject *sb_publisher_type;

static bool take_queues(Route *self, PyObject *addresses) {
  Py_ssize_t count = PyTuple_Size(addresses);
  self->queues = count > 0 && count <= MOST_QUEUES ? PyMem_Malloc((size_t)count * sizeof *self->queues) : NULL;
  if (self->queues == NULL) {
    PyErr_Format(PyExc_ValueError, "a route leads to 1 to %d queues", MOST_QUEUES);
    return false;
  }
  self->count = (uint32_t)count;
  for (uint32_t i = 0; i < self->count; i++) {
    self->queues[i] = PyLong_AsVoidPtr(PyTuple_GetItem(addresses, (Py_ssize_t)i));
  }
  return PyErr_Occurred() == NULL;
}

static PyObject *route_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
  unsigned long long options;
  PyObject *queues, *owner;
  (void)keywords;
  if (!PyArg_ParseTuple(arguments, "O!KO", &PyTuple_Type, &queues, &options, &owner)) {
    return NULL;
  }
  Route *self = (Route *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
  if (self != NULL) {
    self->options = (const sb_put_options *)(uintptr_t)options;
    self->owner = Py_NewRef(owner);
    if (!take_queues(self, queues)) Py_CLEAR(self);
  }
  return (PyObject *)self;
}

static int route_traverse(PyObject *object, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(((Route *)object)->owner);
  return 0;
}

static void route_dealloc(PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  PyMem_Free((void *)((Route *)object)->queues);
  Py_XDECREF(((Route *)object)->owner);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

static PyType_Slot route_slots[] = {
    {Py_tp_new, (void *)route_new},
    {Py_tp_dealloc, (void *)route_dealloc},
    {Py_tp_traverse, (void *)route_traverse},
    {Py_tp_doc, (void *)"Route(queues, options, owner): addresses in the core, and what keeps them."},
    {0, NULL},
};
PyType_Spec sb_route_spec = {"shmbroker._native_message.Route", sizeof(Route), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, route_slots};

/* ---- Publisher ---- */

typedef struct {
  PyObject *exchange, *key, *route; /* all three are NULL, or none is */
} known_route;

typedef struct {
  PyObject_HEAD sb_connection *connection;
  PyObject *owner;
  PyObject *routes; /* {exchange: {routing key: Route}} */
  known_route last; /* the route used last: most callers repeat it, with the same two string objects */
  unsigned long long version;
  bool headers_count; /* a binding in that version may look at the headers of messages */
} Publisher;

static void remember(Publisher *self, PyObject *exchange, PyObject *key, PyObject *route) {
  known_route before = self->last;
  self->last = (known_route){Py_XNewRef(exchange), Py_XNewRef(key), Py_XNewRef(route)};
  Py_XDECREF(before.exchange);
  Py_XDECREF(before.key);
  Py_XDECREF(before.route);
}

/* Returns a new reference to `given`, or for a subclass of `str` to an exact copy. A lookup by the copy runs no
 * `__eq__` or `__hash__` of the subclass, which could change the routes. NULL: `given` is no string. */
static PyObject *name_of(PyObject *given) {
  return PyUnicode_CheckExact(given) ? Py_NewRef(given) : PyUnicode_Check(given) ? PyUnicode_FromObject(given) : NULL;
}

static PyObject *look_up(const Publisher *self, PyObject *exchange, PyObject *key) {
  PyObject *keys = exchange != NULL ? PyDict_GetItemWithError(self->routes, exchange) : NULL;
  PyObject *route = key != NULL && keys != NULL && PyDict_Check(keys) ? PyDict_GetItemWithError(keys, key) : NULL;
  return route != NULL && Py_IS_TYPE(route, route_type) ? route : NULL;
}

static const Route *find(Publisher *self, PyObject *exchange, PyObject *key) {
  if (exchange == self->last.exchange && key == self->last.key) {
    return (const Route *)(const void *)self->last.route;
  }
  PyObject *exact_exchange = name_of(exchange), *exact_key = name_of(key);
  PyObject *route = look_up(self, exact_exchange, exact_key);
  PyErr_Clear(); /* an error here is lack of memory: Python looks up the route again, and raises it */
  if (route != NULL && exact_exchange == exchange && exact_key == key) remember(self, exchange, key, route);
  Py_XDECREF(exact_exchange);
  Py_XDECREF(exact_key);
  return (const Route *)(const void *)route;
}

typedef struct {
  char *data;
  Py_ssize_t length;
} body_bytes;

/* Finds the route of a publish, and stores the body in *body. NULL: Python must publish. */
static const Route *route_of(Publisher *self, PyObject *exchange, PyObject *key, PyObject *given, body_bytes *body) {
  if (!PyBytes_CheckExact(given) || PyBytes_AsStringAndSize(given, &body->data, &body->length) != 0 ||
      body->length > SHORT_BODY || sb_topology_version(self->connection) != self->version) {
    return NULL;
  }
  const Route *route = find(self, exchange, key);
  return route != NULL && (route->count == 1 || body->length <= SHORT_COMMIT) ? route : NULL;
}

/* Sends the message. -1: Python must publish. */
static int send(const Publisher *self, const Route *route, body_bytes body, const sb_put_options *options) {
  if (route->count == 1) {
    return (int)sb_queue_put_with(route->queues[0], body.data, (uint64_t)body.length, options);
  }
  if (options->ttl_ns == SB_TTL_NOW) {
    return -1; /* each queue decides by its own consumers how long the message lives, so each needs a publication */
  }
  sb_publication publication = {.body = body.data,
                                .length = (uint64_t)body.length,
                                .options = options,
                                .targets = route->queues,
                                .target_count = route->count};
  uint32_t failed_publication, failed_target;
  return (int)sb_transaction_commit(self->connection, &publication, 1, NULL, 0, &failed_publication, &failed_target);
}

int sb_publish(PyObject *publisher, PyObject *exchange, PyObject *key, PyObject *given, PyObject *properties) {
  Publisher *self = (Publisher *)publisher;
  body_bytes body;
  char buffer[PROPERTIES_BYTES];
  const Route *route = route_of(self, exchange, key, given, &body);
  if (route == NULL) {
    return -1;
  }
  if (properties == Py_None) {
    return send(self, route, body, route->options);
  }
  sb_put_options options = *route->options;
  bool good = sb_properties_encode(properties, buffer, &options) &&
              !(self->headers_count && sb_properties_have_headers(properties));
  return good ? send(self, route, body, &options) : -1;
}

/* publish_with(exchange, routing_key, body, properties, ttl_ns, priority, has_headers): as sb_publish, with encoded
 * properties; returns the status, -1: Python must publish. Keeps the GIL from the read of `headers_count` to that of the
 * version: else another thread could renew the routes in between. */
static PyObject *publisher_publish_with(PyObject *object, PyObject *const *arguments, Py_ssize_t count) {
  Publisher *self = (Publisher *)object;
  body_bytes body;
  if (!sb_expect(count, 7)) {
    return NULL;
  }
  unsigned long long ttl_ns = PyLong_AsUnsignedLongLong(arguments[4]);
  long priority = PyErr_Occurred() == NULL ? PyLong_AsLong(arguments[5]) : -1;
  if (priority < 0 || priority > UINT8_MAX || !PyBytes_CheckExact(arguments[3])) {
    if (PyErr_Occurred() == NULL)
      PyErr_SetString(PyExc_TypeError, "publish_with(str, str, bytes, bytes, int, 0 to 255, bool)");
    return NULL;
  }
  const Route *route = arguments[6] == Py_True && self->headers_count
                           ? NULL
                           : route_of(self, arguments[0], arguments[1], arguments[2], &body);
  if (route == NULL) {
    return PyLong_FromLong(-1);
  }
  sb_put_options options = *route->options;
  options.properties = PyBytes_AsString(arguments[3]);
  options.properties_length = (uint32_t)PyBytes_Size(arguments[3]);
  options.ttl_ns = ttl_ns;
  options.priority = (uint8_t)priority;
  return PyLong_FromLong(send(self, route, body, &options));
}

/* renew(version, headers_count): removes all routes, unless they are of that version. */
static PyObject *publisher_renew(PyObject *object, PyObject *const *arguments, Py_ssize_t count) {
  Publisher *self = (Publisher *)object;
  if (!sb_expect(count, 2)) {
    return NULL;
  }
  unsigned long long wanted = PyLong_AsUnsignedLongLong(arguments[0]);
  if (PyErr_Occurred() != NULL) {
    return NULL;
  }
  if (wanted != self->version) {
    self->version = wanted;
    remember(self, NULL, NULL, NULL);
    PyDict_Clear(self->routes);
  }
  self->headers_count = arguments[1] == Py_True;
  Py_RETURN_NONE;
}

static PyObject *publisher_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
  unsigned long long address;
  PyObject *owner;
  (void)keywords;
  if (!PyArg_ParseTuple(arguments, "KO", &address, &owner)) {
    return NULL;
  }
  Publisher *self = (Publisher *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
  PyObject *routes = self != NULL ? PyDict_New() : NULL;
  if (routes == NULL) {
    Py_XDECREF((PyObject *)self);
    return NULL;
  }
  self->routes = routes;
  self->connection = (sb_connection *)(uintptr_t)address;
  self->owner = Py_NewRef(owner);
  return (PyObject *)self;
}

/* The owner, and the queues of the routes, refer back to the publisher. This type needs no tp_clear: the garbage
 * collector breaks that cycle at the Python objects. */
static int publisher_traverse(PyObject *object, visitproc visit, void *arg) {
  Publisher *self = (Publisher *)object;
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->routes);
  Py_VISIT(self->last.exchange);
  Py_VISIT(self->last.key);
  Py_VISIT(self->last.route);
  Py_VISIT(self->owner);
  return 0;
}

static void publisher_dealloc(PyObject *object) {
  Publisher *self = (Publisher *)object;
  PyTypeObject *type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  remember(self, NULL, NULL, NULL);
  Py_XDECREF(self->routes);
  Py_XDECREF(self->owner);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

static PyMethodDef publisher_methods[] = {
    {"publish_with", (PyCFunction)(void (*)(void))publisher_publish_with, METH_FASTCALL,
     "publish_with(exchange, routing_key, body, properties, ttl_ns, priority, has_headers, /)\n--\n\n"},
    {"renew", (PyCFunction)(void (*)(void))publisher_renew, METH_FASTCALL, "renew(version, headers_count, /)\n--\n\n"},
    {NULL, NULL, 0, NULL},
};
static PyMemberDef publisher_members[] = {
    {"routes", T_OBJECT, offsetof(Publisher, routes), READONLY, "{exchange: {routing key: Route}}"},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot publisher_slots[] = {
    {Py_tp_new, (void *)publisher_new},
    {Py_tp_dealloc, (void *)publisher_dealloc},
    {Py_tp_traverse, (void *)publisher_traverse},
    {Py_tp_methods, publisher_methods},
    {Py_tp_members, publisher_members},
    {Py_tp_doc, (void *)"Publisher(connection, owner): the routes of a connection, given by its address."},
    {0, NULL},
};
PyType_Spec sb_publisher_spec = {"shmbroker._native_message.Publisher", sizeof(Publisher), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, publisher_slots};

void sb_know_routes(PyTypeObject *type) { route_type = type; }
