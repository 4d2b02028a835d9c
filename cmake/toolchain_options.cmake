# Choices about the compiler and linker that hold for every target: ccache, linker, optimization, unity builds, sanitizers,
# precompiled headers.

find_program(MGPLAN_CCACHE ccache)
mark_as_advanced(MGPLAN_CCACHE)
if(MGPLAN_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER AND NOT MGPLAN_PRECOMPILED_HEADERS) # which it cannot cache across folders
  set(CMAKE_CXX_COMPILER_LAUNCHER ${MGPLAN_CCACHE})
endif()

include(CheckLinkerFlag)
find_program(MGPLAN_MOLD mold)
find_program(MGPLAN_LLD ld.lld)
mark_as_advanced(MGPLAN_MOLD MGPLAN_LLD)
foreach(linker IN ITEMS mold lld) # the first that is there and that the compiler knows
  string(TOUPPER ${linker} name)
  if(MGPLAN_${name})
    check_linker_flag(CXX -fuse-ld=${linker} MGPLAN_COMPILER_TAKES_${name})
    if(MGPLAN_COMPILER_TAKES_${name})
      add_link_options(-fuse-ld=${linker})
      break()
    endif()
  endif()
endforeach()

# -O3 takes the compiler a third longer than -O2 and gains nothing outside the CPU's kernels (docs/decisions/0012-unity-builds.md).
string(REGEX REPLACE "-O3" "-O2" CMAKE_CXX_FLAGS_RELEASE "${CMAKE_CXX_FLAGS_RELEASE}")

# The files of a room are compiled several at a time: each header is read and each template instantiated once a batch.
option(MGPLAN_UNITY_BUILD "Compile the source files of a room in batches" OFF)

# MGPLAN_SANITIZE: what -fsanitize= takes, e.g. "address,undefined" or "thread". A finding ends the program, so that no
# test passes beside one.
set(MGPLAN_SANITIZE "" CACHE STRING "Sanitizers to build with: address,undefined or thread")
if(MGPLAN_SANITIZE)
  add_compile_options(-fsanitize=${MGPLAN_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_compile_definitions(_GLIBCXX_ASSERTIONS)
  add_link_options(-fsanitize=${MGPLAN_SANITIZE})
endif()

# Headers of the standard library, fmt, JSON and GoogleTest are most of what a file costs to compile; precompiled,
# they take clang next to nothing. GCC 12 gains little from them (docs/decisions/0010-sanitizers-with-clang.md).
option(MGPLAN_PRECOMPILED_HEADERS "Precompile the headers that most files include; pays under clang only" OFF)

# mgplan_precompiled_headers(NAME DEPENDS … HEADERS …): a library whose precompiled headers others take by
# mgplan_reuse_precompiled(TARGET NAME). Nothing happens without MGPLAN_PRECOMPILED_HEADERS.
function(mgplan_precompiled_headers name)
  if(NOT MGPLAN_PRECOMPILED_HEADERS)
    return()
  endif()
  cmake_parse_arguments(PRECOMPILED "" "" "DEPENDS;HEADERS" ${ARGN})
  file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp CONTENT "")
  add_library(${name} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
  target_link_libraries(${name} PRIVATE ${PRECOMPILED_DEPENDS})
  target_precompile_headers(${name} PRIVATE ${PRECOMPILED_HEADERS})
endfunction()

function(mgplan_reuse_precompiled target name)
  if(MGPLAN_PRECOMPILED_HEADERS)
    target_precompile_headers(${target} REUSE_FROM ${name})
  endif()
endfunction()
