// Operators whose derivatives are wrong in one way each, for the gradient checker to find.
#include <algorithm>
#include <functional>

#include "stepnet/operator.h"

namespace stepnet {
namespace {

struct CubeArgs {
  std::string mistake;
};

void cube(const CubeArgs&, In<double> x, Out<double> y) {
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * x[i] * x[i];
}

void cube_gradient(const CubeArgs& args, In<double> dy, In<double> x, Out<double> dx) {
  const double factor = args.mistake == "sign" ? -3 : args.mistake == "factor" ? 2 : 3;
  const size_t end = args.mistake == "leaves" ? x.size() - 1 : x.size();
  for (size_t i = 0; i < end; ++i) {
    const double d = factor * x[i] * x[i] * dy[i];
    dx[i] = args.mistake == "adds" ? dx[i] + d : d;
  }
  if (args.mistake == "element" && dx.size() > 4) dx[4] *= 1.0001;
}

void cube_second(const CubeArgs& args, In<double> g, In<double> dy, In<double> x, Out<double> dx) {
  const double factor = args.mistake == "second" ? 5 : 6;
  for (size_t i = 0; i < x.size(); ++i) dx[i] = factor * x[i] * dy[i] * g[i];
}

Gradient cube_derivative(Formula& f) { return f.op("PlantedCubeGradient", {f.dy("Y"), f.x("X")}, f.forward_args()); }

REGISTER(planted_cube) {
  return op<CubeArgs>("PlantedCube")
      .doc("Of tests: the third power.")
      .arg("mistake", &CubeArgs::mistake, std::string(), "what its derivatives do wrong")
      .input("X", "any shape")
      .output("Y", "X^3", like("X"))
      .cpu(cube)
      .derivative("X", cube_derivative);
}

REGISTER(planted_cube_gradient) {
  return op<CubeArgs>("PlantedCubeGradient")
      .doc("Of tests.")
      .arg("mistake", &CubeArgs::mistake, std::string(), "what it does wrong")
      .input("dY", "gradient of Y")
      .input("X", "PlantedCube's")
      .output("dX", "3 X^2 dY", like("X"))
      .cpu(cube_gradient)
      .derivative("dY",
                  [](Formula& f) {
                    return f.op("PlantedCubeGradient", {f.dy("dX"), f.x("X")}, f.forward_args());
                  })
      .derivative("X", [](Formula& f) {
        return f.op("PlantedCubeSecond", {f.dy("dX"), f.x("dY"), f.x("X")}, f.forward_args());
      });
}

REGISTER(planted_cube_second) {
  return op<CubeArgs>("PlantedCubeSecond")
      .doc("Of tests.")
      .arg("mistake", &CubeArgs::mistake, std::string(), "what it does wrong")
      .input("G", "gradient of dX")
      .input("dY", "gradient of Y")
      .input("X", "PlantedCube's")
      .output("dX", "6 X dY G", like("X"))
      .cpu(cube_second)
      .derivative("G",
                  [](Formula& f) {
                    return f.op("PlantedCubeSecond", {f.dy("dX"), f.x("dY"), f.x("X")}, f.forward_args());
                  })
      .derivative("dY",
                  [](Formula& f) {
                    return f.op("PlantedCubeSecond", {f.x("G"), f.dy("dX"), f.x("X")}, f.forward_args());
                  })
      .derivative("X", [](Formula& f) {
        const float factor = f.args<CubeArgs>().mistake == "third" ? 5 : 6;
        const Value product = f.op("Mul", {f.op("Mul", {f.x("G"), f.x("dY")}), f.dy("dX")});
        return f.op("Scale", {product}, {make_arg("scale", factor)});
      });
}

// Its gradient says that it reads no more than the shape of X.
void peek_gradient(In<double> dy, In<double> x, Out<double> dx) {
  for (size_t i = 0; i < x.size(); ++i) dx[i] = 3 * x[i] * x[i] * dy[i];
}

REGISTER(planted_peek) {
  return op("PlantedPeek")
      .doc("Of tests: the third power.")
      .input("X", "any shape")
      .output("Y", "X^3", like("X"))
      .cpu_for<double>(+[](In<double> x, Out<double> y) { cube({}, x, y); })
      .derivative("X", [](Formula& f) {
        return f.op("PlantedPeekGradient", {f.dy("Y"), f.x("X")});
      });
}

REGISTER(planted_peek_gradient) {
  return op("PlantedPeekGradient")
      .doc("Of tests.")
      .input("dY", "gradient of Y")
      .input("X", "PlantedPeek's; read, though it is said not to be")
      .shape_only()
      .output("dX", "3 X^2 dY", like("X"))
      .cpu_for<double>(peek_gradient)
      .no_gradient("it is made for tests");
}

// Y = X + b in each row; the gradient of b misses the last row.
void add_row(In<double> x, In<double> b, Out<double> y) {
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] + b[i % b.size()];
}

void row_gradient(In<double> dy, In<double> b, Out<double> db) {
  std::ranges::fill(db, 0.0);
  for (size_t i = 0; i + b.size() < dy.size(); ++i) db[i % b.size()] += dy[i];
}

REGISTER(planted_add_row) {
  return op("PlantedAddRow")
      .doc("Of tests.")
      .input("X", "any shape")
      .input("b", "of X's last dimension")
      .output("Y", "X + b", like("X"))
      .cpu(add_row)
      .derivative("X", [](Formula& f) { return f.dy("Y"); })
      .derivative("b", [](Formula& f) {
        return f.op("PlantedAddRowGradient", {f.dy("Y"), f.x("b")});
      });
}

REGISTER(planted_add_row_gradient) {
  return op("PlantedAddRowGradient")
      .doc("Of tests.")
      .input("dY", "gradient of Y")
      .input("b", "PlantedAddRow's")
      .shape_only()
      .output("db", "like b", like("b"))
      .cpu(row_gradient)
      .no_gradient("it is made for tests");
}

// Y = X Z; the gradient of Z says that it does not depend on X.
REGISTER(planted_product) {
  return op("PlantedProduct")
      .doc("Of tests: the product.")
      .input("X", "any shape")
      .input("Z", "like X")
      .output("Y", "X Z", like("X"))
      .cpu_for<double>(+[](In<double> x, In<double> z, Out<double> y) {
        std::ranges::transform(x, z, y.begin(), std::multiplies<>());
      })
      .derivative("X",
                  [](Formula& f) {
                    return f.op("Mul", {f.dy("Y"), f.x("Z")});
                  })
      .derivative("Z", [](Formula& f) {
        return f.op("Mul", {f.dy("Y"), f.op("StopGradient", {f.x("X")})});
      });
}

}  // namespace
}  // namespace stepnet
