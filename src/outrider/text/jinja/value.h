// SPDX-License-Identifier: Apache-2.0
// Values of the template language, after Python's: undefined is not none, dicts keep their order, and a string knows
// which of its bytes stem from input data (messages, tools), so that they can be tokenised as plain text later.
// Ownership: strings are counted; every other object lives in the Heap of one render and dies with it, so cycles
// (a namespace that holds itself) cost nothing and no destructor recurses.
// Threads: a Heap and its objects belong to one thread. Strings without an owner (constants of a template) are
// immutable and may be read by several renders at once.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace outrider::text::jinja {

// A fault of a template at compile or run time. line 0: not known yet. from_template: raise_exception's own text.
class Fault : public std::runtime_error {
 public:
  explicit Fault(const std::string& message, int line = 0, bool from_template = false)
      : std::runtime_error(message), line_(line), from_template_(from_template) {}
  int line() const noexcept { return line_; }
  bool from_template() const noexcept { return from_template_; }

 private:
  int line_;
  bool from_template_;
};

template <typename... Args>
[[noreturn]] void fault(fmt::format_string<Args...> format, Args&&... args) {
  throw Fault(fmt::format(format, std::forward<Args>(args)...));
}

struct Limits {
  uint64_t steps = 10'000'000;       // loop rounds, evaluated nodes, and bytes copied / 64
  uint64_t text_bytes = 16U << 20;   // of one string, so of the output too
  uint64_t live_bytes = 256U << 20;  // of all values of a render
  uint32_t eval_depth = 400;         // nested evaluation, macros included
  uint32_t value_depth = 100;        // nested lists and dicts when printed, compared or converted
};

struct ByteRange {
  uint32_t begin = 0, end = 0;
};

class Heap;

struct Str {
  std::string text;
  std::vector<ByteRange> untrusted;  // ascending, disjoint, not adjacent
  bool ascii = true;                 // byte index == code point index
  bool markup = false;               // result of safe or escape: + escapes the other side
  Heap* owner = nullptr;             // whose live bytes count it

  Str() = default;
  Str(const Str&) = delete;
  Str& operator=(const Str&) = delete;
  ~Str();
};
using StrRef = std::shared_ptr<const Str>;

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kDict,
  kNamespace,
  kGenerator,
  kCallable,
  kLoop
};

struct Object {
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
};
struct ListObj;
struct DictObj;
struct NamespaceObj;
struct GeneratorObj;
struct CallableObj;
struct LoopObj;

class Value {
 public:
  Value() : i_(0) {}
  static Value undefined(StrRef hint = nullptr, bool forbidden = false);
  static Value none() { return Value(Kind::kNone); }
  static Value boolean(bool b);
  static Value integer(int64_t i);
  static Value real(double d);
  static Value string(StrRef s);
  Value(ListObj* list);            // NOLINT: objects convert
  Value(DictObj* dict);            // NOLINT
  Value(NamespaceObj* ns);         // NOLINT
  Value(GeneratorObj* generator);  // NOLINT
  Value(CallableObj* callable);    // NOLINT
  Value(LoopObj* loop);            // NOLINT

  Kind kind() const noexcept { return kind_; }
  bool is(Kind kind) const noexcept { return kind_ == kind; }
  bool is_undefined() const noexcept { return kind_ == Kind::kUndefined; }
  bool is_none() const noexcept { return kind_ == Kind::kNone; }
  bool is_string() const noexcept { return kind_ == Kind::kString; }
  bool is_number() const noexcept { return kind_ == Kind::kBool || kind_ == Kind::kInt || kind_ == Kind::kFloat; }
  bool is_integral() const noexcept { return kind_ == Kind::kBool || kind_ == Kind::kInt; }

  int64_t as_int() const noexcept { return i_; }  // bool or int
  double as_real() const noexcept { return kind_ == Kind::kFloat ? d_ : static_cast<double>(i_); }
  const StrRef& str() const noexcept { return s_; }
  std::string_view text() const noexcept { return s_->text; }
  ListObj* list() const noexcept;
  DictObj* dict() const noexcept;
  NamespaceObj* ns() const noexcept;
  GeneratorObj* generator() const noexcept;
  CallableObj* callable() const noexcept;
  LoopObj* loop() const noexcept;
  // Of an undefined value: what was looked up, and whether it is a method the sandbox forbids.
  std::string undefined_text() const;
  bool forbidden() const noexcept { return kind_ == Kind::kUndefined && i_ != 0; }

 private:
  explicit Value(Kind kind) : kind_(kind), i_(0) {}
  Kind kind_ = Kind::kUndefined;
  union {
    int64_t i_;
    double d_;
    Object* o_;
  };
  StrRef s_;
};

// The flavours differ in how they print and in what they can do (dict views cannot be indexed).
enum class ListFlavor : uint8_t { kList, kTuple, kGroup, kRange, kDictKeys, kDictValues, kDictItems };
struct ListObj : Object {
  std::vector<Value> items;
  ListFlavor flavor = ListFlavor::kList;
  int64_t start = 0, stop = 0, step = 1;  // of a range, for printing
};

struct DictObj : Object {
  std::vector<std::pair<Value, Value>> entries;     // in insertion order
  std::unordered_map<std::string, uint32_t> index;  // by hash_key(), once there are many entries
  // Position of the entry, or -1. An unhashable key is a fault.
  int64_t find(const Value& key) const;
  int64_t find(std::string_view key) const;
  void set(Heap& heap, const Value& key, Value value);
  void erase(size_t position);
};

struct NamespaceObj : Object {
  DictObj* fields = nullptr;
};

// A lazy sequence of Python: true whatever it holds, without length, used up by being read.
struct GeneratorObj : Object {
  std::vector<Value> items;
  size_t next = 0;
};

struct CallArgs {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

class Interpreter;
struct CallableObj : Object {
  virtual Value call(Interpreter& interpreter, CallArgs& args) = 0;
  virtual std::string describe() const = 0;  // how it prints
  // Sets value and returns true when there is such an attribute.
  virtual bool attribute(Interpreter&, std::string_view, Value&) { return false; }
};

// The loop variable. The items are a snapshot, so previtem, nextitem and length are known.
struct LoopObj : Object {
  const std::vector<Value>* items = nullptr;  // lives as long as the loop runs; null afterwards
  size_t index0 = 0, length = 0;
  int64_t depth = 1;
  bool changed_once = false;
  std::vector<Value> last_changed;
  CallableObj* recurse = nullptr;  // of a recursive loop
};

// Owns the objects of a render and holds its limits.
class Heap {
 public:
  explicit Heap(const Limits& limits) : limits_(limits), steps_left_(limits.steps) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  const Limits& limits() const noexcept { return limits_; }
  void charge(uint64_t steps);  // throws Fault when the steps are used up
  void grow(uint64_t bytes);    // throws Fault when too much is alive
  void shrink(uint64_t bytes) noexcept { live_bytes_ -= bytes; }

  template <typename T>
  T* make() {
    grow(sizeof(T) + 16);
    objects_.push_back(std::make_unique<T>());
    return static_cast<T*>(objects_.back().get());
  }
  ListObj* make_list(std::vector<Value> items, ListFlavor flavor = ListFlavor::kList);
  GeneratorObj* make_generator(std::vector<Value> items);
  StrRef make_str(std::string text, bool trusted = true);

 private:
  Limits limits_;
  uint64_t steps_left_;
  uint64_t live_bytes_ = 0;
  std::vector<std::unique_ptr<Object>> objects_;
};

// A string without owner, for constants of a template.
StrRef constant_str(std::string text);

// Collects text with its provenance; refuses to grow past the limit of one string.
class StrBuilder {
 public:
  explicit StrBuilder(Heap& heap) : heap_(&heap) {}
  void append(std::string_view text, bool trusted = true);
  void append(const Str& s) { append(s, 0, s.text.size()); }
  void append(const Str& s, size_t begin, size_t end);
  void append_repeated(char c, uint64_t n);
  size_t n_bytes() const noexcept { return text_.size(); }
  bool has_untrusted() const noexcept { return !untrusted_.empty(); }
  // The whole of it becomes untrusted: for results whose parts cannot be traced.
  void distrust_all();
  std::string& text() noexcept { return text_; }
  const std::vector<ByteRange>& untrusted() const noexcept { return untrusted_; }
  StrRef take(bool markup = false);
  Value take_value(bool markup = false) { return Value::string(take(markup)); }

 private:
  void mark(size_t begin, size_t end);
  Heap* heap_;
  std::string text_;
  std::vector<ByteRange> untrusted_;
};

// Bytes [begin, end) of a string.
StrRef slice_bytes(Heap& heap, const StrRef& s, size_t begin, size_t end);
// `text` has the provenance of `s` byte by byte when the lengths agree and it is ASCII, else it is distrusted as a
// whole if any part of s is untrusted.
Value like(Heap& heap, const Str& s, std::string text);

bool truthy(const Value& value);
const char* type_name(const Value& value);  // Python's
// Equality of Python: 1 == 1.0 == true, lists and dicts by structure.
bool equals(Heap& heap, const Value& a, const Value& b, uint32_t depth = 0);
// -1, 0, 1; a fault for types that have no order among each other. NaN compares as greater.
int compare(Heap& heap, const Value& a, const Value& b, const char* op, uint32_t depth = 0);
// Equal values have equal keys. A fault for lists and dicts.
std::string hash_key(const Value& value, uint32_t depth = 0);
// The elements of anything that can be iterated; uses a generator up. A fault otherwise.
std::vector<Value> iterate(Heap& heap, const Value& value);
bool is_iterable(const Value& value);
// The length, or -1 when the value has none.
int64_t length_of(const Value& value);

void print(const Value& value, StrBuilder& out, Heap& heap);                     // Python's str()
void repr(const Value& value, StrBuilder& out, Heap& heap, uint32_t depth = 0);  // Python's repr()
StrRef to_str(const Value& value, Heap& heap);
std::string real_repr(double d);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool multiline = false;
  std::string indent;  // of one level
  std::string item_separator = ", ", key_separator = ": ";
};
// json.dumps; the result is distrusted as a whole when any string of the value is.
StrRef to_json(const Value& value, const JsonStyle& style, Heap& heap);

inline ListObj* Value::list() const noexcept { return static_cast<ListObj*>(o_); }
inline DictObj* Value::dict() const noexcept { return static_cast<DictObj*>(o_); }
inline NamespaceObj* Value::ns() const noexcept { return static_cast<NamespaceObj*>(o_); }
inline GeneratorObj* Value::generator() const noexcept { return static_cast<GeneratorObj*>(o_); }
inline CallableObj* Value::callable() const noexcept { return static_cast<CallableObj*>(o_); }
inline LoopObj* Value::loop() const noexcept { return static_cast<LoopObj*>(o_); }

}  // namespace outrider::text::jinja
