// SPDX-License-Identifier: Apache-2.0
// Codebooks of the IQ1, IQ2 and IQ3 formats: an index gives 8 or 4 values. Magnitudes for IQ2 and IQ3 (signs are
// stored apart), signed -1, 0, 1 for IQ1. Data, made by tools/make_iq_grids.py.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace outrider::numerics {

template <size_t kEntries, size_t kWidth>
using Grid = std::array<std::array<int8_t, kWidth>, kEntries>;

// The same numbers as f32, for vector code.
template <size_t kEntries, size_t kWidth>
using FloatGrid = std::array<std::array<float, kWidth>, kEntries>;

extern const Grid<256, 8> kIq2XxsGrid;  // 8, 25, 43
extern const Grid<512, 8> kIq2XsGrid;   // 8, 25, 43
extern const Grid<1024, 8> kIq2SGrid;   // 8, 25, 43
extern const Grid<256, 4> kIq3XxsGrid;  // 4, 12, ... 52, 62
extern const Grid<512, 4> kIq3SGrid;    // 1, 3, ... 15
extern const Grid<2048, 8> kIq1Grid;    // -1, 0, 1; IQ1_S and IQ1_M

extern const FloatGrid<256, 8> kIq2XxsFloats;
extern const FloatGrid<512, 8> kIq2XsFloats;
extern const FloatGrid<1024, 8> kIq2SFloats;
extern const FloatGrid<256, 4> kIq3XxsFloats;
extern const FloatGrid<512, 4> kIq3SFloats;

// kIq1Grid in nibbles, element 0 in the lowest: value + 1. Entry 2048 + i is entry i with 4 added to each nibble, for
// the groups whose shift is below 0.
extern const std::array<uint32_t, 4096> kIq1Codes;

}  // namespace outrider::numerics
