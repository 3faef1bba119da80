// SPDX-License-Identifier: Apache-2.0
// Arithmetic on numbers, after Python: / gives a float, // and % round towards minus infinity. Integers have 64 bits; a
// result that needs more is a fault.
#include <cmath>

#include "outrider/text/jinja/interpreter.h"

namespace outrider::text::jinja {
namespace {

[[noreturn]] void overflow() { fault("an integer of the template does not fit into 64 bits"); }

int64_t floor_div(int64_t a, int64_t b) {
  if (a == INT64_MIN && b == -1) overflow();
  const int64_t q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}

int64_t floor_mod(int64_t a, int64_t b) {
  if (b == -1) return 0;
  const int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

double real_mod(double a, double b) {
  double r = std::fmod(a, b);
  if (r != 0 && (r < 0) != (b < 0)) r += b;
  return r == 0 ? std::copysign(0.0, b) : r;
}

int64_t int_power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  if (base == 0 || base == 1) return exponent == 0 ? 1 : base;
  if (base == -1) return exponent % 2 == 0 ? 1 : -1;
  for (int64_t i = 0; i < exponent; ++i) {  // at most 63 rounds before it overflows
    if (__builtin_mul_overflow(result, base, &result)) overflow();
  }
  return result;
}

Value int_arithmetic(Op op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool wraps = false;
  switch (op) {
    case Op::kAdd:
      wraps = __builtin_add_overflow(a, b, &result);
      break;
    case Op::kSub:
      wraps = __builtin_sub_overflow(a, b, &result);
      break;
    case Op::kMul:
      wraps = __builtin_mul_overflow(a, b, &result);
      break;
    case Op::kFloorDiv:
      if (b == 0) fault("integer division or modulo by zero");
      return Value::integer(floor_div(a, b));
    case Op::kMod:
      if (b == 0) fault("integer modulo by zero");
      return Value::integer(floor_mod(a, b));
    case Op::kPow:
      if (b >= 0) return Value::integer(int_power(a, b));
      if (a == 0) fault("0.0 cannot be raised to a negative power");
      return Value::real(std::pow(static_cast<double>(a), static_cast<double>(b)));
    default:
      break;
  }
  if (wraps) overflow();
  return Value::integer(result);
}

Value real_arithmetic(Op op, double a, double b) {
  switch (op) {
    case Op::kAdd:
      return Value::real(a + b);
    case Op::kSub:
      return Value::real(a - b);
    case Op::kMul:
      return Value::real(a * b);
    case Op::kFloorDiv:
      if (b == 0) fault("float floor division by zero");
      return Value::real(std::nearbyint((a - real_mod(a, b)) / b));  // a whole number but for rounding
    case Op::kMod:
      if (b == 0) fault("float modulo");
      return Value::real(real_mod(a, b));
    case Op::kPow:
      if (a == 0 && b < 0) fault("0.0 cannot be raised to a negative power");
      if (a < 0 && b != std::floor(b)) fault("complex numbers are not supported");
      return Value::real(std::pow(a, b));
    default:
      return {};
  }
}

}  // namespace

const char* op_text(Op op) {
  switch (op) {
    case Op::kEq:
      return "==";
    case Op::kNe:
      return "!=";
    case Op::kLt:
      return "<";
    case Op::kLe:
      return "<=";
    case Op::kGt:
      return ">";
    case Op::kGe:
      return ">=";
    case Op::kIn:
      return "in";
    case Op::kNotIn:
      return "not in";
    case Op::kAdd:
      return "+";
    case Op::kSub:
      return "-";
    case Op::kMul:
      return "*";
    case Op::kDiv:
      return "/";
    case Op::kFloorDiv:
      return "//";
    case Op::kMod:
      return "%";
    case Op::kPow:
      return "** or pow()";
    case Op::kNone:
      break;
  }
  return "?";
}

Value number_arithmetic(Op op, const Value& a, const Value& b) {
  if (op == Op::kDiv) {
    if (b.as_real() == 0) fault("division by zero");
    return Value::real(a.as_real() / b.as_real());
  }
  if (a.is_integral() && b.is_integral()) return int_arithmetic(op, a.as_int(), b.as_int());
  return real_arithmetic(op, a.as_real(), b.as_real());
}

}  // namespace outrider::text::jinja
