# Choices about the compiler and linker that hold for every target: ccache, linker, optimization, unity builds, sanitizers,
# precompiled headers.

find_program(MGPLAN_CCACHE ccache)
mark_as_advanced(MGPLAN_CCACHE)
if(MGPLAN_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER AND NOT MGPLAN_PRECOMPILED_HEADERS STREQUAL all) # which it cannot cache across folders
  set(CMAKE_CXX_COMPILER_LAUNCHER ${MGPLAN_CCACHE})
endif()

# Assertions name files as the project does, wherever it lies: builds do not differ by their folder, and ccache knows what another clone
# compiled. As a project of its own (python/) the folder above is the project's.
cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH mgplan_sources)
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-ffile-prefix-map=${mgplan_sources}/=>)

include(CheckLinkerFlag)
find_program(MGPLAN_MOLD mold)
find_program(MGPLAN_LLD ld.lld)
mark_as_advanced(MGPLAN_MOLD MGPLAN_LLD)
if(MGPLAN_MOLD)
  execute_process(COMMAND ${MGPLAN_MOLD} --version OUTPUT_VARIABLE version ERROR_QUIET)
  if(NOT version MATCHES "^mold ([0-9.]+)" OR CMAKE_MATCH_1 VERSION_LESS 2)
    set(MGPLAN_MOLD "") # mold 1.10, which Debian 12 has, was seen not to end three times while two builds ran side by side
  endif()
endif()
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

# More takes the compiler a third longer and searches no faster; only the CPU's kernels have -O3 (docs/decisions/0013-unity-builds.md).
string(REGEX REPLACE "-O3" "-O1" CMAKE_CXX_FLAGS_RELEASE "${CMAKE_CXX_FLAGS_RELEASE}")

# A multiplication and an addition are rounded apart, so that predictions and vectors do not change by the processor that the compiler is
# given (-march=x86-64-v3 has one instruction for both). The CPU's kernels may use it: their tests allow for rounding.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)

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

# Headers of the standard library, fmt, JSON and GoogleTest are most of what a file costs to compile. Precompiled, they take clang
# next to nothing; GCC 12 spends a quarter less on a test and nothing less on a room's batch of files
# (docs/decisions/0013-unity-builds.md).
set(MGPLAN_PRECOMPILED_HEADERS off CACHE STRING "Precompile the headers that most files include: all, tests or off")
set_property(CACHE MGPLAN_PRECOMPILED_HEADERS PROPERTY STRINGS all tests off)
if(NOT MGPLAN_PRECOMPILED_HEADERS MATCHES "^(all|tests|off)$")
  message(FATAL_ERROR "MGPLAN_PRECOMPILED_HEADERS = ${MGPLAN_PRECOMPILED_HEADERS} is none of all, tests, off")
endif()

# mgplan_precompiled_headers(NAME [FOR_PROGRAMS] WHERE … DEPENDS … HEADERS …): a target whose precompiled headers others take by
# mgplan_reuse_precompiled(TARGET NAME), where MGPLAN_PRECOMPILED_HEADERS is one of WHERE; elsewhere nothing happens.
function(mgplan_precompiled_headers name)
  cmake_parse_arguments(PRECOMPILED "FOR_PROGRAMS" "" "WHERE;DEPENDS;HEADERS" ${ARGN})
  if(NOT MGPLAN_PRECOMPILED_HEADERS IN_LIST PRECOMPILED_WHERE)
    return()
  endif()
  # A library or a program, as what takes them is: GCC refuses headers compiled with -fPIC where a program has -fPIE.
  file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp CONTENT "int main() {}\n")
  if(PRECOMPILED_FOR_PROGRAMS)
    add_executable(${name} EXCLUDE_FROM_ALL ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
  else()
    add_library(${name} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
  endif()
  target_link_libraries(${name} PRIVATE ${PRECOMPILED_DEPENDS})
  target_precompile_headers(${name} PRIVATE ${PRECOMPILED_HEADERS})
endfunction()

function(mgplan_reuse_precompiled target name)
  if(TARGET ${name})
    target_precompile_headers(${target} REUSE_FROM ${name})
  endif()
endfunction()
