# Choices about the compiler and linker that hold for every target: ccache, lld, sanitizers, precompiled headers.

find_program(MGPLAN_CCACHE ccache)
mark_as_advanced(MGPLAN_CCACHE)
if(MGPLAN_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER AND NOT MGPLAN_PRECOMPILED_HEADERS) # which it cannot cache across folders
  set(CMAKE_CXX_COMPILER_LAUNCHER ${MGPLAN_CCACHE})
endif()

include(CheckLinkerFlag)
find_program(MGPLAN_LLD ld.lld)
mark_as_advanced(MGPLAN_LLD)
if(MGPLAN_LLD)
  check_linker_flag(CXX -fuse-ld=lld MGPLAN_LINKER_TAKES_LLD)
  if(MGPLAN_LINKER_TAKES_LLD)
    add_link_options(-fuse-ld=lld)
  endif()
endif()

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
