# Copies the shared libraries that PROGRAMS and MODULES need into FOLDER, each as a plain file of the name by which it is asked for:
# symbolic links may be lost on the way to another machine. With PROGRAM_FOLDER, also the programs there and the modules into FOLDER;
# both folders are emptied before.
set(runtimes "^ld-linux" "^lib(c|m|dl|rt|pthread|stdc\\+\\+|gcc_s|atomic|quadmath|gfortran)\\.so" "^lib(cuda|cublas|cudnn|nccl|nv)")
file(GET_RUNTIME_DEPENDENCIES
  EXECUTABLES ${PROGRAMS}
  MODULES ${MODULES}
  RESOLVED_DEPENDENCIES_VAR found
  UNRESOLVED_DEPENDENCIES_VAR missing
  PRE_EXCLUDE_REGEXES ${runtimes})
if(missing)
  message(FATAL_ERROR "not found: ${missing}")
endif()
if(PROGRAM_FOLDER)
  file(REMOVE_RECURSE ${FOLDER} ${PROGRAM_FOLDER})
endif()
file(MAKE_DIRECTORY ${FOLDER})
foreach(library IN LISTS found)
  cmake_path(GET library FILENAME name)
  file(REAL_PATH ${library} real)
  file(REMOVE ${FOLDER}/${name})
  file(COPY_FILE ${real} ${FOLDER}/${name})
  message(STATUS "beside the programs: ${name}, which is ${real}")
endforeach()
if(PROGRAM_FOLDER)
  file(COPY ${PROGRAMS} DESTINATION ${PROGRAM_FOLDER})
  file(COPY ${MODULES} DESTINATION ${FOLDER})
endif()
