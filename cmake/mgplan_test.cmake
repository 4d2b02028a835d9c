# Test programs. mgplan_test(NAME [OPTIMIZED] [LONG] SOURCES … DEPENDS … LABELS …): one GoogleTest program per room.
# Labels: unit and golden run under the address and undefined behaviour sanitizers too, threads (beside one of these)
# under the thread sanitizer, gpu may be skipped where there is none, slow is left out by ./test --quick.
# LONG programs take minutes under a sanitizer. NOT_SANITIZED names tests that run in release alone, since under a sanitizer they only
# repeat at length what others of the program do; one that does not exist fails in release under its name.
# PROCESSORS programs also run with the code of other processors: NAME_as_KERNEL sets an OpenBLAS kernel and limits the CPU kernels to
# the vector units of such a processor (tests/support/vector_units.cpp). ./test --all runs those of MGPLAN_KERNELS that are not LONG,
# --everything all.
# Files are compiled in batches, as those of rooms are, so each has a namespace of its own, named after it.
# The target sanitized_tests builds the programs labelled unit or golden, threaded_tests those labelled threads.
add_custom_target(sanitized_tests)
add_custom_target(threaded_tests)

# Compiling a test takes longer than running it, so tests are not optimized; of the sanitizers' builds they are the greater
# part. OPTIMIZED is for those that compile code of the project, such as the bodies of CUDA kernels, and run it long.
add_library(mgplan_quickly_compiled INTERFACE)
target_compile_options(mgplan_quickly_compiled INTERFACE $<$<OR:$<CONFIG:Release>,$<CONFIG:None>>:-O0>)
mgplan_precompiled_headers(mgplan_precompiled_tests
  FOR_PROGRAMS
  WHERE all tests
  DEPENDS mgplan_quickly_compiled mgplan_warnings GTest::gmock fmt::fmt nlohmann_json::nlohmann_json
  HEADERS <algorithm> <array> <chrono> <cmath> <cstdint> <filesystem> <fstream> <functional> <map> <memory> <numeric> <optional> <random> <set>
    <span> <sstream> <string> <string_view> <thread> <utility> <vector> <fmt/format.h> <gmock/gmock.h> <gtest/gtest.h> <nlohmann/json.hpp>)

add_library(mgplan_test_data STATIC ${PROJECT_SOURCE_DIR}/tests/support/data_folder.cpp)
target_include_directories(mgplan_test_data PRIVATE ${PROJECT_SOURCE_DIR})
target_compile_definitions(mgplan_test_data PRIVATE MGPLAN_TEST_DATA="${PROJECT_SOURCE_DIR}/tests")

set(MGPLAN_KERNELS Zen:avx2)
set(MGPLAN_MORE_KERNELS Prescott:baseline Nehalem:baseline Sandybridge:baseline Haswell:avx2 SkylakeX:avx512)

function(mgplan_test name)
  cmake_parse_arguments(TEST "OPTIMIZED;LONG;PROCESSORS" "" "SOURCES;DEPENDS;LABELS;NOT_SANITIZED" ${ARGN})
  if(TEST_PROCESSORS)
    list(APPEND TEST_SOURCES ${PROJECT_SOURCE_DIR}/tests/support/vector_units.cpp)
  endif()
  add_executable(${name} ${TEST_SOURCES})
  mgplan_compile_in_batches(${name} 60)
  target_link_libraries(${name} PRIVATE ${TEST_DEPENDS} GTest::gmock GTest::gtest_main rapidcheck fmt::fmt mgplan_test_data mgplan_warnings)
  if(TEST_OPTIMIZED)
    target_compile_options(${name} PRIVATE $<$<CONFIG:None>:-O2>) # what sanitizers' builds do without
    mgplan_reuse_precompiled(${name} mgplan_precompiled)
  else()
    target_link_libraries(${name} PRIVATE mgplan_quickly_compiled)
    mgplan_reuse_precompiled(${name} mgplan_precompiled_tests)
  endif()
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  if("unit" IN_LIST TEST_LABELS OR "golden" IN_LIST TEST_LABELS)
    add_dependencies(sanitized_tests ${name})
    set_property(GLOBAL APPEND PROPERTY MGPLAN_SANITIZED_TESTS ${name})
  endif()
  if("threads" IN_LIST TEST_LABELS)
    add_dependencies(threaded_tests ${name})
  endif()
  if(MGPLAN_SANITIZE)
    # A whole program is one test: most of a short test under a sanitizer is the start of its process.
    set(filter "")
    if(TEST_NOT_SANITIZED)
      list(JOIN TEST_NOT_SANITIZED ":" filter)
      set(filter --gtest_filter=-${filter})
    endif()
    add_test(NAME ${name} COMMAND ${PROJECT_SOURCE_DIR}/cmake/begin_in_time.sh $<TARGET_FILE:${name}> ${filter})
    # Fewer random cases of a property, as each takes ten times as long.
    set_tests_properties(${name} PROPERTIES LABELS "${TEST_LABELS}" TIMEOUT 1800 SKIP_RETURN_CODE 75 ENVIRONMENT RC_PARAMS=max_success=30)
    if(TEST_LONG)
      set_tests_properties(${name} PROPERTIES COST 1000) # begins first, so that no core is left with it at the end
    endif()
    return()
  endif()
  if(TEST_PROCESSORS AND CMAKE_BUILD_TYPE STREQUAL "Release")
    foreach(processor IN LISTS MGPLAN_KERNELS MGPLAN_MORE_KERNELS)
      string(REPLACE ":" ";" processor_parts ${processor})
      list(GET processor_parts 0 kernel)
      list(GET processor_parts 1 units)
      set(labels thorough)
      if(TEST_LONG OR processor IN_LIST MGPLAN_MORE_KERNELS)
        list(APPEND labels everything)
      endif()
      add_test(NAME ${name}_as_${kernel} COMMAND ${name} --gtest_brief=1)
      set_tests_properties(${name}_as_${kernel} PROPERTIES TIMEOUT 1200 COST 100
        ENVIRONMENT "OPENBLAS_CORETYPE=${kernel};MGPLAN_TEST_VECTOR_UNITS=${units}" LABELS "${labels}")
    endforeach()
  endif()
  # Named cases keep their names; printed values would add bytes that differ from build to build.
  gtest_discover_tests(${name} NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 300)
  # gtest_discover_tests flattens properties that are lists, so the labels are set by a file that ctest reads after its.
  set(labels_file ${CMAKE_CURRENT_BINARY_DIR}/${name}_labels.cmake)
  file(CONFIGURE OUTPUT ${labels_file} @ONLY CONTENT [[
foreach(test IN LISTS @name@_TESTS)
  set_tests_properties("${test}" PROPERTIES LABELS "@TEST_LABELS@")
endforeach()
foreach(test IN ITEMS @TEST_NOT_SANITIZED@)
  list(FIND @name@_TESTS "${test}" place)
  if(place EQUAL -1)
    add_test("@name@: NOT_SANITIZED names ${test}, which does not exist" "@CMAKE_COMMAND@" -E false)
  endif()
endforeach()
]])
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${labels_file})
endfunction()

# mgplan_write_sanitized_tests(): writes sanitized_tests to the build folder, for ./test --all, which runs the programs that a
# change concerns: a line for each, its name and the folders whose code it is made of.
function(mgplan_write_sanitized_tests)
  set(lines "")
  get_property(programs GLOBAL PROPERTY MGPLAN_SANITIZED_TESTS)
  foreach(program IN LISTS programs)
    set(folders "")
    set(seen "")
    set(open ${program})
    while(open)
      list(POP_FRONT open target)
      if(NOT TARGET ${target})
        continue()
      endif()
      get_target_property(aliased ${target} ALIASED_TARGET)
      if(aliased)
        set(target ${aliased})
      endif()
      if(target IN_LIST seen OR NOT "${target}" MATCHES "^(mgplan_|planner_test_support|${program}$)")
        continue()
      endif()
      list(APPEND seen ${target})
      get_target_property(folder ${target} SOURCE_DIR)
      cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
      if(NOT folder MATCHES "^([.]|tests)$") # flags and helpers that all of them share
        list(APPEND folders ${folder})
      endif()
      foreach(property IN ITEMS LINK_LIBRARIES INTERFACE_LINK_LIBRARIES)
        get_target_property(linked ${target} ${property})
        if(linked)
          list(APPEND open ${linked})
        endif()
      endforeach()
    endwhile()
    list(REMOVE_DUPLICATES folders)
    list(JOIN folders " " folders)
    string(APPEND lines "${program} ${folders}\n")
  endforeach()
  file(WRITE ${PROJECT_BINARY_DIR}/sanitized_tests "${lines}")
endfunction()

# mgplan_mpi_program(NAME SOURCES … DEPENDS …): a program for mpirun, with a main of its own.
function(mgplan_mpi_program name)
  cmake_parse_arguments(PROGRAM "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${PROGRAM_SOURCES})
  target_link_libraries(${name} PRIVATE ${PROGRAM_DEPENDS} GTest::gtest mgplan_warnings)
endfunction()

# mgplan_mpi_test(PROGRAM RANKS): runs it on that many ranks, on however few cores, as root too (CI). Label mpi.
function(mgplan_mpi_test program ranks)
  add_test(NAME ${program}_on_${ranks}_ranks
    COMMAND ${MPIEXEC_EXECUTABLE} --oversubscribe ${MPIEXEC_NUMPROC_FLAG} ${ranks} --timeout 240 $<TARGET_FILE:${program}>)
  set_tests_properties(${program}_on_${ranks}_ranks PROPERTIES LABELS mpi TIMEOUT 300 PROCESSORS 2
    ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
endfunction()
