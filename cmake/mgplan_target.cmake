# One static library per room: mgplan_room(NAME [COLD|HOT] SOURCES … [COLD_SOURCES …] DEPENDS …) makes target mgplan_NAME with alias mgplan::NAME.
# COLD rooms run once in a command (they read input, print results): they are optimized for a short compile, and under sanitizers, which
# take clang three times as long for optimized code, not at all. COLD_SOURCES are such files of another room. A HOT room is where a search
# spends its time: a tenth less of it is worth a longer compile. Without interposition, of which nothing here makes use, functions of code
# for a shared library are inlined too.
# Under MGPLAN_UNITY_BUILD consecutive SOURCES are compiled together, so files that share costly headers stand together.
# The global property MGPLAN_ROOMS lists the names. cmake/install.cmake installs those of them that others may link.
# Rooms that plan and predict are compiled for programs and for Python's module alike.
set(MGPLAN_PLANNING_ROOMS plan model formats simulator planner reports cli_planning)
# Rooms that read outside input. Where fuzzers are built these tell them what an input reached; the same libraries serve the tests.
# (-fsanitize=fuzzer-no-link means these flags, but clang then refuses headers that were precompiled without it.)
set(MGPLAN_READING_ROOMS plan formats checkpoint data)
set(MGPLAN_TELL_FUZZERS -fsanitize-coverage=inline-8bit-counters,indirect-calls,trace-cmp,pc-table)
add_library(mgplan_warnings INTERFACE)
# -Wno-restrict: GCC 12 warns about its own std::string (bug 105651).
target_compile_options(mgplan_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  # Files of a batch are included, which GCC takes for headers: whose anonymous namespaces it warns of.
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<BOOL:${MGPLAN_UNITY_BUILD}>>:-Wno-subobject-linkage>)

set(MGPLAN_PRECOMPILED
  <algorithm> <array> <cmath> <cstdint> <filesystem> <fstream> <functional> <map> <memory> <numeric> <optional> <set> <span> <sstream>
  <string> <string_view> <utility> <vector> <fmt/format.h> <nlohmann/json.hpp>)
add_library(mgplan_cold INTERFACE)
target_compile_options(mgplan_cold INTERFACE $<$<CONFIG:Release>:-Og> $<$<CONFIG:None>:-O0>)
add_library(mgplan_hot INTERFACE)
target_compile_options(mgplan_hot INTERFACE $<$<CONFIG:Release>:-O2 -fno-semantic-interposition>)
mgplan_precompiled_headers(mgplan_precompiled
  WHERE all
  DEPENDS fmt::fmt nlohmann_json::nlohmann_json
  HEADERS ${MGPLAN_PRECOMPILED})
mgplan_precompiled_headers(mgplan_precompiled_cold
  WHERE all
  DEPENDS fmt::fmt nlohmann_json::nlohmann_json mgplan_cold
  HEADERS ${MGPLAN_PRECOMPILED})

# mgplan_compile_in_batches(TARGET FILES): the target's source files in translation units of equal size, of at most so many files.
function(mgplan_compile_in_batches target most)
  get_target_property(sources ${target} SOURCES)
  list(LENGTH sources count)
  math(EXPR batches "(${count} + ${most} - 1) / ${most}")
  math(EXPR files "(${count} + ${batches} - 1) / ${batches}")
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${MGPLAN_UNITY_BUILD} UNITY_BUILD_MODE BATCH UNITY_BUILD_BATCH_SIZE ${files})
endfunction()

# mgplan_compile_room(TARGET NAME [COLD|HOT]): flags, precompiled headers and batches of what is compiled for a room.
function(mgplan_compile_room target name)
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:mgplan_warnings>)
  if("COLD" IN_LIST ARGN)
    target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:mgplan_cold>)
    mgplan_reuse_precompiled(${target} mgplan_precompiled_cold)
  else()
    if("HOT" IN_LIST ARGN)
      target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:mgplan_hot>)
    endif()
    mgplan_reuse_precompiled(${target} mgplan_precompiled)
  endif()
  mgplan_compile_in_batches(${target} 60)
  # Precompiled headers are compiled for programs alone; the builds that take them have no Python module.
  if(name IN_LIST MGPLAN_PLANNING_ROOMS AND NOT MGPLAN_PRECOMPILED_HEADERS STREQUAL all)
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  endif()
  if(MGPLAN_FUZZ AND name IN_LIST MGPLAN_READING_ROOMS)
    target_compile_options(${target} PRIVATE ${MGPLAN_TELL_FUZZERS})
  endif()
endfunction()

function(mgplan_room name)
  cmake_parse_arguments(ROOM "COLD;HOT" "" "SOURCES;COLD_SOURCES;DEPENDS;PRIVATE_DEPENDS" ${ARGN})
  add_library(mgplan_${name} STATIC ${ROOM_SOURCES})
  add_library(mgplan::${name} ALIAS mgplan_${name})
  set_target_properties(mgplan_${name} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(mgplan_${name} PUBLIC cxx_std_20)
  target_include_directories(mgplan_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include/mgplan>)
  target_link_libraries(mgplan_${name} PUBLIC ${ROOM_DEPENDS} PRIVATE ${ROOM_PRIVATE_DEPENDS})
  set(speed "")
  if(ROOM_COLD)
    set(speed COLD)
  elseif(ROOM_HOT)
    set(speed HOT)
  endif()
  mgplan_compile_room(mgplan_${name} ${name} ${speed})
  if(ROOM_COLD_SOURCES)
    add_library(mgplan_${name}_cold OBJECT ${ROOM_COLD_SOURCES})
    target_compile_features(mgplan_${name}_cold PRIVATE cxx_std_20)
    target_include_directories(mgplan_${name}_cold PRIVATE ${PROJECT_SOURCE_DIR})
    target_link_libraries(mgplan_${name}_cold PRIVATE ${ROOM_DEPENDS})
    mgplan_compile_room(mgplan_${name}_cold ${name} COLD)
    target_sources(mgplan_${name} PRIVATE $<TARGET_OBJECTS:mgplan_${name}_cold>)
  endif()
  set_property(GLOBAL APPEND PROPERTY MGPLAN_ROOMS ${name})
endfunction()
