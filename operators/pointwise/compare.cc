// EQ, NE, LT, LE, GT, GE: C says where A and B compare so, with broadcasting. NaN differs from everything
// and compares as nothing else. Gradients end here.
#include "operators/pointwise/elementwise_binary.h"

namespace stepnet::cpu_compare {
namespace {

template <class Comparison, class T>
void forward(const BroadcastArgs& args, In<T> a, In<T> b, Out<bool> c, Call& call) {
  elementwise_binary<Comparison>(args, a, b, c, call);
}

template <class Comparison>
OpBuilder<BroadcastArgs> compare(const char* type, const char* sign, const std::string& says) {
  OpBuilder<BroadcastArgs> b = predicate_op(type, sign);
  b.doc("Where A " + says + " B, element by element.")
      .cpu(forward<Comparison, float>, forward<Comparison, double>, forward<Comparison, int32_t>,
           forward<Comparison, int64_t>);
  return b;
}

// Of bools, too, whose order means nothing.
template <class Comparison>
OpBuilder<BroadcastArgs> equal(const char* type, const char* sign, const std::string& says) {
  OpBuilder<BroadcastArgs> b = predicate_op(type, sign, kIntegerExamples);
  b.doc("Where A " + says + " B, element by element.")
      .cpu(forward<Comparison, float>, forward<Comparison, double>, forward<Comparison, int32_t>,
           forward<Comparison, int64_t>, forward<Comparison, bool>);
  return b;
}

REGISTER(eq) { return equal<std::equal_to<>>("EQ", "==", "equals"); }
REGISTER(ne) { return equal<std::not_equal_to<>>("NE", "!=", "differs from"); }
REGISTER(lt) { return compare<std::less<>>("LT", "<", "is less than"); }
REGISTER(le) { return compare<std::less_equal<>>("LE", "<=", "is at most"); }
REGISTER(gt) { return compare<std::greater<>>("GT", ">", "is greater than"); }
REGISTER(ge) { return compare<std::greater_equal<>>("GE", ">=", "is at least"); }

}  // namespace
}  // namespace stepnet::cpu_compare
