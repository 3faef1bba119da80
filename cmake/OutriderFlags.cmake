# SPDX-License-Identifier: Apache-2.0
# The one flags target. Every module links it privately, so nothing leaks into users of the library.
add_library(outrider_flags INTERFACE)
# No contraction: docs/numerics.md fixes where an fma is; the compiler may not add or drop one.
target_compile_options(outrider_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wimplicit-fallthrough
  -ffp-contract=off -fno-math-errno -fno-trapping-math)
if(OUTRIDER_WERROR)
  target_compile_options(outrider_flags INTERFACE -Werror)
endif()
if(OUTRIDER_SANITIZE)
  target_compile_options(outrider_flags INTERFACE -fsanitize=${OUTRIDER_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(outrider_flags INTERFACE -fsanitize=${OUTRIDER_SANITIZE})
endif()
find_program(OUTRIDER_MOLD mold)
if(OUTRIDER_MOLD AND NOT OUTRIDER_SANITIZE)
  target_link_options(outrider_flags INTERFACE -fuse-ld=mold)
endif()
# Instruction-set flags sit only on the files of that variant (style.md section 7).
set(OUTRIDER_AVX2_FLAGS -mavx2 -mfma -mf16c)
set(OUTRIDER_AVX512_FLAGS -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni)
# GCC 12's own AVX-512 headers trip these two (bug 105593: _mm512_undefined_* reads itself).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND OUTRIDER_AVX512_FLAGS -Wno-maybe-uninitialized -Wno-uninitialized)
endif()
